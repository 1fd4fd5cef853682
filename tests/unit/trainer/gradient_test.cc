// Tests the backward pass of every layer and of the whole model of `gpt_train` against finite
// differences, in double precision.
#include <gtest/gtest.h>

#include <functional>

#include "bench/trainer/loss.h"
#include "bench/trainer/model.h"

namespace rewire::trainer {
namespace {

using M = Matrix<double>;
using Array = AlignedVector<double>;

M Random(int rows, int cols, uint64_t seed) {
  M m(rows, cols);
  const RandomKey key(seed, {7});
  for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = key.Normal(i);
  return m;
}

Array RandomParameters(const ParameterLayout& layout, uint64_t seed) {
  Array out(layout.elements(), 0.0);
  const RandomKey key(seed, {9});
  for (const Parameter& p : layout.all()) {
    for (uint64_t i = 0; i < p.size(); ++i) {
      out[p.offset + i] = p.constant + 0.3 * key.Normal(p.offset + i);
    }
  }
  return out;
}

// Expects that `slopes`, the backward pass's gradient of f() with respect to each of `values`,
// matches the central finite difference.
void ExpectSlopes(double* values, size_t count, const double* slopes,
                  const std::function<double()>& f) {
  constexpr double kStep = 1e-5;
  double largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const double kept = values[i];
    values[i] = kept + kStep;
    const double up = f();
    values[i] = kept - kStep;
    const double down = f();
    values[i] = kept;
    const double expected = (up - down) / (2 * kStep);
    ASSERT_NEAR(slopes[i], expected, 1e-6 * (1 + std::abs(expected))) << "element " << i;
    largest = std::max(largest, std::abs(expected));
  }
  // Without this check, a function that ignores its input would pass.
  EXPECT_GT(largest, 1e-4);
}

// Checks a layer's gradients with respect to its input and its parameters. The loss is
// sum(y * mask), where y is the layer's output.
template <typename Layer>
void CheckLayer(const Layer& layer, const ParameterLayout& layout, M x) {
  Array values = RandomParameters(layout, 3);
  Array slopes(values.size(), 0.0);
  const Weights<double> w{layout, values.data()};
  const M mask = Random(static_cast<int>(x.rows()), static_cast<int>(x.cols()), 5);
  const auto loss = [&] {
    typename Layer::Kept kept;
    return layer.Forward(w, x, kept).cwiseProduct(mask).sum();
  };
  typename Layer::Kept kept;
  layer.Forward(w, x, kept);
  const M dx = layer.Backward(w, Gradients<double>{layout, slopes.data()}, kept, mask);
  ExpectSlopes(x.data(), x.size(), dx.data(), loss);
  ExpectSlopes(values.data(), values.size(), slopes.data(), loss);
}

TEST(LayerGradient, LayerNormMatchesFiniteDifferences) {
  ParameterLayout layout;
  const LayerNorm<double> layer(layout, "norm", 6);
  CheckLayer(layer, layout, Random(4, 6, 1));
}

TEST(LayerGradient, AttentionMatchesFiniteDifferences) {
  ParameterLayout layout;
  const Attention<double> layer(layout, "attention", 8, 2, 0.02);
  CheckLayer(layer, layout, Random(5, 8, 1));
}

TEST(LayerGradient, MlpMatchesFiniteDifferences) {
  ParameterLayout layout;
  const Mlp<double> layer(layout, "mlp", 6, 0.02);
  CheckLayer(layer, layout, Random(4, 6, 1));
}

TEST(LayerGradient, CrossEntropyMatchesFiniteDifferences) {
  M logits = Random(3, kVocabulary, 1);
  const std::vector<uint8_t> targets = {0, 17, 255};
  M slopes = logits;
  CrossEntropy<double>(slopes, targets);
  ExpectSlopes(logits.data(), logits.size(), slopes.data(), [&] {
    M copy = logits;
    return CrossEntropy<double>(copy, targets);
  });
}

TEST(LayerForward, AttentionIgnoresLaterTokens) {
  ParameterLayout layout;
  const Attention<double> layer(layout, "attention", 8, 2, 0.02);
  const Array values = RandomParameters(layout, 3);
  const Weights<double> w{layout, values.data()};
  M x = Random(5, 8, 1);
  Attention<double>::Kept kept;
  const M before = layer.Forward(w, x, kept);
  x.row(3).setConstant(2);
  const M after = layer.Forward(w, x, kept);
  EXPECT_EQ(before.topRows(3), after.topRows(3));
  EXPECT_NE(before.row(3), after.row(3));
}

void CheckModel(bool tied) {
  ModelShape shape;
  shape.layers = 2;
  shape.width = 4;
  shape.heads = 2;
  shape.context = 5;
  shape.tied = tied;
  shape.dropout = 0.2;
  const Model<double> model(shape);
  Array values = RandomParameters(model.layout(), 3);
  Array slopes(values.size(), 0.0);
  const std::vector<uint8_t> tokens = {1, 200, 3, 1, 90, 17};
  const RandomKey key(1, {2, 3});
  model.Run(values.data(), tokens, key, slopes.data());
  ExpectSlopes(values.data(), values.size(), slopes.data(),
               [&] { return model.Run(values.data(), tokens, key, nullptr).loss; });
}

TEST(ModelGradient, MatchesFiniteDifferencesWithTiedHead) { CheckModel(true); }
TEST(ModelGradient, MatchesFiniteDifferencesWithSeparateHead) { CheckModel(false); }

}  // namespace
}  // namespace rewire::trainer
