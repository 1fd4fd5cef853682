// The small operations of layers. Every sum runs in one fixed order that depends on the shape
// alone, so that a sample's result has the same bits on every member. Pure; thread-safe.
#pragma once

#include <cmath>

#include "bench/trainer/rng.h"
#include "bench/trainer/tensor.h"

namespace rewire::trainer {

// y = x W' + b; W is (outputs, inputs), b is (1, outputs).
template <typename Real>
Matrix<Real> Linear(const Matrix<Real>& x, const ConstMatrixMap<Real>& w,
                    const ConstMatrixMap<Real>& b) {
  Matrix<Real> y(x.rows(), w.rows());
  y.noalias() = x * w.transpose();
  for (Eigen::Index t = 0; t < y.rows(); ++t) y.row(t) += b.row(0);
  return y;
}

// Adds to dw and db; returns dx.
template <typename Real>
Matrix<Real> LinearBackward(const Matrix<Real>& dy, const Matrix<Real>& x,
                            const ConstMatrixMap<Real>& w, MatrixMap<Real> dw, MatrixMap<Real> db) {
  dw.noalias() += dy.transpose() * x;
  for (Eigen::Index t = 0; t < dy.rows(); ++t) db.row(0) += dy.row(t);
  Matrix<Real> dx(x.rows(), x.cols());
  dx.noalias() = dy * w;
  return dx;
}

// The tanh form of GELU.
template <typename Real>
Real GeluArgument(Real x) {
  return Real(0.7978845608028654) * (x + Real(0.044715) * x * x * x);
}

template <typename Real>
Matrix<Real> Gelu(const Matrix<Real>& x) {
  return x.unaryExpr([](Real v) { return Real(0.5) * v * (Real(1) + std::tanh(GeluArgument(v))); });
}

template <typename Real>
Matrix<Real> GeluBackward(const Matrix<Real>& dy, const Matrix<Real>& x) {
  return dy.binaryExpr(x, [](Real d, Real v) {
    const Real t = std::tanh(GeluArgument(v));
    const Real slope = Real(0.7978845608028654) * (Real(1) + Real(3 * 0.044715) * v * v);
    return d * (Real(0.5) * (Real(1) + t) + Real(0.5) * v * (Real(1) - t * t) * slope);
  });
}

// Zeroes elements with the given probability and scales the others. The function is its own
// backward pass, because the mask is drawn again instead of stored.
template <typename Real>
void Dropout(Matrix<Real>& x, double probability, const RandomKey& key) {
  if (probability <= 0) return;
  const Real scale = Real(1 / (1 - probability));
  const auto limit = static_cast<uint64_t>(probability * 0x1p32);
  Real* values = x.data();
  for (Eigen::Index i = 0; i < x.size(); ++i) {
    values[i] = (key.Bits(i) >> 32) < limit ? Real(0) : values[i] * scale;
  }
}

}  // namespace rewire::trainer
