// Multi-head self-attention with a causal mask. Owned by one thread.
#pragma once

#include <cmath>
#include <vector>

#include "bench/trainer/ops.h"
#include "bench/trainer/tensor.h"

namespace rewire::trainer {

template <typename Real>
class Attention {
 public:
  // output_deviation: the projection back into the residual stream starts smaller with depth.
  Attention(ParameterLayout& layout, const std::string& name, int width, int heads,
            double output_deviation)
      : heads_(heads),
        qkv_(layout.Add(name + ".qkv.weight", 3 * width, width, 0.02, 0, true)),
        qkv_bias_(layout.Add(name + ".qkv.bias", 1, 3 * width, 0, 0, false)),
        out_(layout.Add(name + ".out.weight", width, width, output_deviation, 0, true)),
        out_bias_(layout.Add(name + ".out.bias", 1, width, 0, 0, false)) {}

  struct Kept {
    Matrix<Real> x, qkv, mixed;
    std::vector<Matrix<Real>> weights;  // per head, (token, attended token)
  };

  Matrix<Real> Forward(const Weights<Real>& w, const Matrix<Real>& x, Kept& kept) const {
    kept.x = x;
    kept.qkv = Linear<Real>(x, w[qkv_], w[qkv_bias_]);
    kept.mixed.resize(x.rows(), x.cols());
    kept.weights.resize(heads_);
    for (int h = 0; h < heads_; ++h) {
      Matrix<Real>& p = kept.weights[h];
      p.resize(x.rows(), x.rows());
      p.noalias() = Part(kept.qkv, 0, h) * Part(kept.qkv, 1, h).transpose();
      Softmax(p, Scale(x));
      Head(kept.mixed, h).noalias() = p * Part(kept.qkv, 2, h);
    }
    return Linear<Real>(kept.mixed, w[out_], w[out_bias_]);
  }

  Matrix<Real> Backward(const Weights<Real>& w, const Gradients<Real>& g, const Kept& kept,
                        const Matrix<Real>& dy) const {
    Matrix<Real> dmixed = LinearBackward<Real>(dy, kept.mixed, w[out_], g[out_], g[out_bias_]);
    Matrix<Real> dqkv(kept.qkv.rows(), kept.qkv.cols());
    Matrix<Real> dp(dy.rows(), dy.rows());
    for (int h = 0; h < heads_; ++h) {
      const Matrix<Real>& p = kept.weights[h];
      dp.noalias() = Head(dmixed, h) * Part(kept.qkv, 2, h).transpose();
      Part(dqkv, 2, h).noalias() = p.transpose() * Head(dmixed, h);
      SoftmaxBackward(p, dp, Scale(kept.x));
      Part(dqkv, 0, h).noalias() = dp * Part(kept.qkv, 1, h);
      Part(dqkv, 1, h).noalias() = dp.transpose() * Part(kept.qkv, 0, h);
    }
    return LinearBackward<Real>(dqkv, kept.x, w[qkv_], g[qkv_], g[qkv_bias_]);
  }

 private:
  // Returns the columns of one head in a (token, width) matrix; part 0, 1, 2 of qkv: query, key,
  // value.
  template <typename M>
  auto Head(M& m, int h) const {
    const Eigen::Index size = m.cols() / heads_;
    return m.middleCols(h * size, size);
  }
  template <typename M>
  auto Part(M& m, int part, int h) const {
    const Eigen::Index width = m.cols() / 3, size = width / heads_;
    return m.middleCols(part * width + h * size, size);
  }
  Real Scale(const Matrix<Real>& x) const {
    const Eigen::Index size = x.cols() / heads_;
    return Real(1) / std::sqrt(static_cast<Real>(size));
  }

  // Token t attends to tokens 0..t.
  static void Softmax(Matrix<Real>& p, Real scale) {
    for (Eigen::Index t = 0; t < p.rows(); ++t) {
      Real top = p(t, 0);
      for (Eigen::Index s = 1; s <= t; ++s) top = std::max(top, p(t, s));
      Real sum = 0;
      for (Eigen::Index s = 0; s <= t; ++s) {
        p(t, s) = std::exp((p(t, s) - top) * scale);
        sum += p(t, s);
      }
      for (Eigen::Index s = 0; s <= t; ++s) p(t, s) /= sum;
      for (Eigen::Index s = t + 1; s < p.cols(); ++s) p(t, s) = 0;
    }
  }
  // dp becomes the gradient of the scores before scaling.
  static void SoftmaxBackward(const Matrix<Real>& p, Matrix<Real>& dp, Real scale) {
    for (Eigen::Index t = 0; t < p.rows(); ++t) {
      Real dot = 0;
      for (Eigen::Index s = 0; s <= t; ++s) dot += p(t, s) * dp(t, s);
      for (Eigen::Index s = 0; s < p.cols(); ++s) dp(t, s) = p(t, s) * (dp(t, s) - dot) * scale;
    }
  }

  int heads_;
  ParameterId qkv_, qkv_bias_, out_, out_bias_;
};

}  // namespace rewire::trainer
