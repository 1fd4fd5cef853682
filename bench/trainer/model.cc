#include "bench/trainer/model.h"

#include <cmath>
#include <string>

#include "bench/trainer/loss.h"

namespace rewire::trainer {
namespace {

// Numbers the draws of a sample's random numbers; the layer's index is mixed in separately.
enum Op : uint64_t { kEmbedding = 0, kAttention = 1, kMlp = 2 };

RandomKey DropoutKey(const RandomKey& sample, uint64_t layer, Op op) {
  return sample.Child(layer).Child(op);
}

}  // namespace

template <typename Real>
Model<Real>::Model(const ModelShape& shape) : shape_(shape) {
  const double small = 0.02 / std::sqrt(2.0 * shape.layers);
  token_ = layout_.Add("token", kVocabulary, shape.width, 0.02, 0, true);
  position_ = layout_.Add("position", shape.context, shape.width, 0.02, 0, true);
  for (int i = 0; i < shape.layers; ++i) {
    const std::string name = "block" + std::to_string(i);
    LayerNorm<Real> norm1(layout_, name + ".norm1", shape.width);
    Attention<Real> attention(layout_, name + ".attention", shape.width, shape.heads, small);
    LayerNorm<Real> norm2(layout_, name + ".norm2", shape.width);
    blocks_.push_back(
        {norm1, attention, norm2, Mlp<Real>(layout_, name + ".mlp", shape.width, small)});
  }
  norm_.emplace(layout_, "norm", shape.width);
  head_ = shape.tied ? token_ : layout_.Add("head", kVocabulary, shape.width, 0.02, 0, true);
}

template <typename Real>
double Model<Real>::Initial(const Parameter& p, uint64_t index, uint64_t seed) {
  if (p.deviation == 0) return p.constant;
  return p.deviation * RandomKey(seed, {0x696e6974, p.offset}).Normal(index);
}

template <typename Real>
SampleResult Model<Real>::Run(const Real* weights, std::span<const uint8_t> tokens,
                              const RandomKey& key, Real* gradients) const {
  const Weights<Real> w{layout_, weights};
  const int length = shape_.context;
  Matrix<Real> x(length, shape_.width);
  for (int t = 0; t < length; ++t) x.row(t) = w[token_].row(tokens[t]) + w[position_].row(t);
  Dropout(x, shape_.dropout, DropoutKey(key, 0, kEmbedding));

  std::vector<BlockKept> kept(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    Matrix<Real> y =
        b.attention.Forward(w, b.norm1.Forward(w, x, kept[i].norm1), kept[i].attention);
    Dropout(y, shape_.dropout, DropoutKey(key, i + 1, kAttention));
    x += y;
    y = b.mlp.Forward(w, b.norm2.Forward(w, x, kept[i].norm2), kept[i].mlp);
    Dropout(y, shape_.dropout, DropoutKey(key, i + 1, kMlp));
    x += y;
  }
  typename LayerNorm<Real>::Kept last;
  x = norm_->Forward(w, x, last);

  SampleResult result;
  for (Eigen::Index i = 0; i < x.size(); ++i) result.activation += std::abs(x.data()[i]);
  result.activation /= static_cast<double>(x.size());
  Matrix<Real> logits(length, kVocabulary);
  logits.noalias() = x * w[head_].transpose();
  result.loss = CrossEntropy<Real>(logits, tokens.subspan(1));
  if (gradients == nullptr) return result;

  const Gradients<Real> g{layout_, gradients};
  g[head_].noalias() += logits.transpose() * x;
  Matrix<Real> dx(length, shape_.width);
  dx.noalias() = logits * w[head_];
  dx = norm_->Backward(w, g, last, dx);
  for (size_t i = blocks_.size(); i-- > 0;) {
    const Block& b = blocks_[i];
    Matrix<Real> dy = dx;
    Dropout(dy, shape_.dropout, DropoutKey(key, i + 1, kMlp));
    dx += b.norm2.Backward(w, g, kept[i].norm2, b.mlp.Backward(w, g, kept[i].mlp, dy));
    dy = dx;
    Dropout(dy, shape_.dropout, DropoutKey(key, i + 1, kAttention));
    dx += b.norm1.Backward(w, g, kept[i].norm1, b.attention.Backward(w, g, kept[i].attention, dy));
  }
  Dropout(dx, shape_.dropout, DropoutKey(key, 0, kEmbedding));
  for (int t = 0; t < length; ++t) {
    g[token_].row(tokens[t]) += dx.row(t);
    g[position_].row(t) += dx.row(t);
  }
  return result;
}

template class Model<float>;
template class Model<double>;

}  // namespace rewire::trainer
