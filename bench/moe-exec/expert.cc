#include "bench/moe-exec/expert.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace rewire::bench {
namespace {

float Sigmoid(float v) { return 1 / (1 + std::exp(-v)); }

void InnerOf(const ExpertShape& s, const float* w1, const float* x, float* inner) {
  for (uint32_t f = 0; f < s.inner; ++f) {
    float sum = 0;
    for (uint32_t h = 0; h < s.hidden; ++h) sum += w1[size_t{f} * s.hidden + h] * x[h];
    inner[f] = sum;
  }
}

}  // namespace

void ExpertForward(const ExpertShape& s, const float* weights, const float* x, float* y,
                   uint32_t rows) {
  const float* const w2 = weights + size_t{s.inner} * s.hidden;
  std::vector<float> inner(s.inner);
  for (uint32_t row = 0; row < rows; ++row, x += s.hidden, y += s.hidden) {
    InnerOf(s, weights, x, inner.data());
    for (float& v : inner) v *= Sigmoid(v);
    for (uint32_t h = 0; h < s.hidden; ++h) {
      float sum = 0;
      for (uint32_t f = 0; f < s.inner; ++f) sum += w2[size_t{h} * s.inner + f] * inner[f];
      y[h] = sum;
    }
  }
}

void ExpertBackward(const ExpertShape& s, const float* weights, const float* x, const float* dy,
                    float* dx, float* dw, uint32_t rows) {
  const size_t second = size_t{s.inner} * s.hidden;
  const float* const w2 = weights + second;
  std::fill_n(dw, s.weights(), 0.0F);
  std::vector<float> inner(s.inner), outer(s.inner), slope(s.inner);
  for (uint32_t row = 0; row < rows; ++row, x += s.hidden, dy += s.hidden, dx += s.hidden) {
    InnerOf(s, weights, x, inner.data());
    for (uint32_t f = 0; f < s.inner; ++f) {
      const float gate = Sigmoid(inner[f]);
      outer[f] = inner[f] * gate;
      float sum = 0;
      for (uint32_t h = 0; h < s.hidden; ++h) sum += w2[size_t{h} * s.inner + f] * dy[h];
      slope[f] = sum * gate * (1 + inner[f] * (1 - gate));
    }
    std::fill_n(dx, s.hidden, 0.0F);
    for (uint32_t f = 0; f < s.inner; ++f) {
      for (uint32_t h = 0; h < s.hidden; ++h) {
        dx[h] += weights[size_t{f} * s.hidden + h] * slope[f];
        dw[size_t{f} * s.hidden + h] += slope[f] * x[h];
        dw[second + size_t{h} * s.inner + f] += dy[h] * outer[f];
      }
    }
  }
}

}  // namespace rewire::bench
