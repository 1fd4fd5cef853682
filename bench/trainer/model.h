// A small GPT over bytes: token and position embedding, pre-norm blocks, a tied or separate head.
// Processes one sample at a time. Const after construction; thread-safe.
#pragma once

#include <optional>
#include <span>

#include "bench/trainer/attention.h"
#include "bench/trainer/layer_norm.h"
#include "bench/trainer/mlp.h"

namespace rewire::trainer {

struct ModelShape {
  int layers = 2;
  int width = 128;
  int heads = 4;
  int context = 64;
  bool tied = true;
  double dropout = 0.1;
};

inline constexpr int kVocabulary = 256;

struct SampleResult {
  double loss = 0;
  double activation = 0;  // mean magnitude before the head
};

template <typename Real>
class Model {
 public:
  explicit Model(const ModelShape& shape);

  [[nodiscard]] const ParameterLayout& layout() const { return layout_; }
  // Returns the initial value of element `index` of parameter p.
  static double Initial(const Parameter& p, uint64_t index, uint64_t seed);

  // tokens: context + 1 bytes. Adds to gradients (nullptr: forward only). key is the sample's.
  SampleResult Run(const Real* weights, std::span<const uint8_t> tokens, const RandomKey& key,
                   Real* gradients) const;

 private:
  struct Block {
    LayerNorm<Real> norm1;
    Attention<Real> attention;
    LayerNorm<Real> norm2;
    Mlp<Real> mlp;
  };
  struct BlockKept {
    typename LayerNorm<Real>::Kept norm1, norm2;
    typename Attention<Real>::Kept attention;
    typename Mlp<Real>::Kept mlp;
  };

  ModelShape shape_;
  ParameterLayout layout_;
  ParameterId token_, position_;
  std::vector<Block> blocks_;
  std::optional<LayerNorm<Real>> norm_;
  ParameterId head_;
};

extern template class Model<float>;
extern template class Model<double>;

}  // namespace rewire::trainer
