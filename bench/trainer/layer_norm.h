// Layer normalisation over the features of each token, with a gain and a bias. Owned by one thread.
#pragma once

#include <cmath>

#include "bench/trainer/tensor.h"

namespace rewire::trainer {

template <typename Real>
class LayerNorm {
 public:
  LayerNorm(ParameterLayout& layout, const std::string& name, int width)
      : gain_(layout.Add(name + ".gain", 1, width, 0, 1, false)),
        bias_(layout.Add(name + ".bias", 1, width, 0, 0, false)) {}

  struct Kept {
    Matrix<Real> normal;          // (x - mean) / deviation
    AlignedVector<Real> inverse;  // 1 / deviation, per token
  };

  Matrix<Real> Forward(const Weights<Real>& w, const Matrix<Real>& x, Kept& kept) const {
    const auto gain = w[gain_], bias = w[bias_];
    const Eigen::Index width = x.cols();
    kept.normal.resize(x.rows(), width);
    kept.inverse.resize(x.rows());
    Matrix<Real> y(x.rows(), width);
    for (Eigen::Index t = 0; t < x.rows(); ++t) {
      Real mean = 0, variance = 0;
      for (Eigen::Index i = 0; i < width; ++i) mean += x(t, i);
      mean /= static_cast<Real>(width);
      for (Eigen::Index i = 0; i < width; ++i) variance += (x(t, i) - mean) * (x(t, i) - mean);
      const Real inverse = Real(1) / std::sqrt(variance / static_cast<Real>(width) + Real(1e-5));
      kept.inverse[t] = inverse;
      for (Eigen::Index i = 0; i < width; ++i) {
        kept.normal(t, i) = (x(t, i) - mean) * inverse;
        y(t, i) = kept.normal(t, i) * gain(0, i) + bias(0, i);
      }
    }
    return y;
  }

  Matrix<Real> Backward(const Weights<Real>& w, const Gradients<Real>& g, const Kept& kept,
                        const Matrix<Real>& dy) const {
    const auto gain = w[gain_];
    auto dgain = g[gain_], dbias = g[bias_];
    const Eigen::Index width = dy.cols();
    Matrix<Real> dx(dy.rows(), width);
    for (Eigen::Index t = 0; t < dy.rows(); ++t) {
      Real mean = 0, projection = 0;
      for (Eigen::Index i = 0; i < width; ++i) {
        const Real scaled = dy(t, i) * gain(0, i);
        mean += scaled;
        projection += scaled * kept.normal(t, i);
        dgain(0, i) += dy(t, i) * kept.normal(t, i);
        dbias(0, i) += dy(t, i);
      }
      mean /= static_cast<Real>(width);
      projection /= static_cast<Real>(width);
      for (Eigen::Index i = 0; i < width; ++i) {
        dx(t, i) =
            kept.inverse[t] * (dy(t, i) * gain(0, i) - mean - kept.normal(t, i) * projection);
      }
    }
    return dx;
  }

 private:
  ParameterId gain_;
  ParameterId bias_;
};

}  // namespace rewire::trainer
