// Cross entropy between logits and the next bytes, averaged over the tokens of one sample. Pure;
// thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "bench/trainer/tensor.h"

namespace rewire::trainer {

// Replaces logits by their gradient; returns the loss.
template <typename Real>
double CrossEntropy(Matrix<Real>& logits, std::span<const uint8_t> targets) {
  double loss = 0;
  const Real share = Real(1) / static_cast<Real>(logits.rows());
  for (Eigen::Index t = 0; t < logits.rows(); ++t) {
    Real top = logits(t, 0);
    for (Eigen::Index v = 1; v < logits.cols(); ++v) top = std::max(top, logits(t, v));
    const double target = static_cast<double>(logits(t, targets[t]) - top);
    Real sum = 0;
    for (Eigen::Index v = 0; v < logits.cols(); ++v) {
      logits(t, v) = std::exp(logits(t, v) - top);
      sum += logits(t, v);
    }
    loss += std::log(static_cast<double>(sum)) - target;
    const Real scale = share / sum;
    for (Eigen::Index v = 0; v < logits.cols(); ++v) logits(t, v) *= scale;
    logits(t, targets[t]) -= share;
  }
  return loss / static_cast<double>(logits.rows());
}

}  // namespace rewire::trainer
