// The feed-forward part of a block: up by four, GELU, down. Owned by one thread.
#pragma once

#include "bench/trainer/ops.h"
#include "bench/trainer/tensor.h"

namespace rewire::trainer {

template <typename Real>
class Mlp {
 public:
  Mlp(ParameterLayout& layout, const std::string& name, int width, double output_deviation)
      : up_(layout.Add(name + ".up.weight", 4 * width, width, 0.02, 0, true)),
        up_bias_(layout.Add(name + ".up.bias", 1, 4 * width, 0, 0, false)),
        down_(layout.Add(name + ".down.weight", width, 4 * width, output_deviation, 0, true)),
        down_bias_(layout.Add(name + ".down.bias", 1, width, 0, 0, false)) {}

  struct Kept {
    Matrix<Real> x, inner, active;
  };

  Matrix<Real> Forward(const Weights<Real>& w, const Matrix<Real>& x, Kept& kept) const {
    kept.x = x;
    kept.inner = Linear<Real>(x, w[up_], w[up_bias_]);
    kept.active = Gelu<Real>(kept.inner);
    return Linear<Real>(kept.active, w[down_], w[down_bias_]);
  }

  Matrix<Real> Backward(const Weights<Real>& w, const Gradients<Real>& g, const Kept& kept,
                        const Matrix<Real>& dy) const {
    const Matrix<Real> dactive =
        LinearBackward<Real>(dy, kept.active, w[down_], g[down_], g[down_bias_]);
    return LinearBackward<Real>(GeluBackward<Real>(dactive, kept.inner), kept.x, w[up_], g[up_],
                                g[up_bias_]);
  }

 private:
  ParameterId up_, up_bias_, down_, down_bias_;
};

}  // namespace rewire::trainer
