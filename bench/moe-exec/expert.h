// Computes an expert's network, y = W2 silu(W1 x), forward and backward, for any number of rows.
// The result of a row depends neither on other rows nor on the computing device. A weight's
// gradient is summed in the order of the rows. Called by the kernels of layer_run.cc. Pure;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rewire::bench {

struct ExpertShape {
  uint32_t hidden = 64;  // width of x and y
  uint32_t inner = 48;
  // Returns the number of weights: W1 (inner x hidden), then W2 (hidden x inner).
  [[nodiscard]] size_t weights() const { return size_t{2} * hidden * inner; }
  [[nodiscard]] size_t weight_bytes() const { return weights() * sizeof(float); }
  [[nodiscard]] size_t row_bytes() const { return hidden * sizeof(float); }
};

void ExpertForward(const ExpertShape& shape, const float* weights, const float* x, float* y,
                   uint32_t rows);
// Overwrites dx (the gradients of x) and dw (the gradients of the weights).
void ExpertBackward(const ExpertShape& shape, const float* weights, const float* x, const float* dy,
                    float* dx, float* dw, uint32_t rows);

}  // namespace rewire::bench
