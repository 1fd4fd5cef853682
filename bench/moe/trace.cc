#include "bench/moe/trace.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rewire::bench {

Trace::Trace(const TraceShape& shape, uint64_t seed)
    : shape_(shape), random_(seed), history_(shape.experts) {
  std::normal_distribution<double> normal;
  for (uint32_t e = 0; e < shape.experts; ++e) {
    fixed_.push_back(normal(random_));
    drift_.push_back(normal(random_));
    common_.push_back(e % shape.block == 0 ? normal(random_) : common_.back());
    batch_.owner.push_back(e / (shape.experts / shape.devices));
  }
  batch_.devices = shape.devices;
  batch_.tokens.resize(shape.experts);
  batch_.dynamic.resize(shape.experts);
  by_source_.resize(size_t{shape.devices} * shape.experts);
}

// Returns the probabilities that a token goes to each expert. A token takes `top` different experts
// with weights w: about 1 - exp(-s * w), with s such that the sum is `top`.
std::vector<double> Trace::Chances() {
  std::vector<double> weights;
  const double own = std::sqrt((1 - shape_.shared) / 2);
  const double common = std::sqrt(shape_.shared);
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    weights.push_back(
        std::exp(shape_.sigma * (own * (fixed_[e] + drift_[e]) + common * common_[e])));
  }
  double low = 0;
  double high = 1e6;
  std::vector<double> chances(weights.size());
  for (int i = 0; i < 100; ++i) {
    const double s = (low + high) / 2;
    double sum = 0;
    for (size_t e = 0; e < weights.size(); ++e) sum += chances[e] = -std::expm1(-s * weights[e]);
    (sum < shape_.top ? low : high) = s;
  }
  return chances;
}

void Trace::Draw(uint32_t device, const std::vector<double>& chances) {
  uint32_t* const row = &by_source_[size_t{device} * shape_.experts];
  int64_t left = int64_t{shape_.tokens} * shape_.top;
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    row[e] = static_cast<uint32_t>(
        std::binomial_distribution<int64_t>(shape_.tokens, chances[e])(random_));
    left -= row[e];
  }
  // A token has exactly `top` experts; the rounding difference goes to random experts.
  std::discrete_distribution<uint32_t> any(chances.begin(), chances.end());
  while (left != 0) {
    uint32_t& tokens = row[any(random_)];
    if (left > 0 ? tokens == shape_.tokens : tokens == 0) continue;
    tokens += left > 0 ? 1 : -1;
    left += left > 0 ? -1 : 1;
  }
}

void Trace::ChooseDynamic() {
  std::fill(batch_.dynamic.begin(), batch_.dynamic.end(), 0);
  const uint32_t own = shape_.experts / shape_.devices;
  std::vector<uint32_t> order(own);
  for (uint32_t d = 0; d < shape_.devices; ++d) {
    std::iota(order.begin(), order.end(), d * own);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return history_[a] > history_[b]; });
    for (uint32_t i = 0; i < std::min(shape_.dynamic, own); ++i) batch_.dynamic[order[i]] = 1;
  }
}

void Trace::Shift() {
  std::normal_distribution<double> normal;
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    fixed_[e] = normal(random_);
    drift_[e] = normal(random_);
    common_[e] = e % shape_.block == 0 ? normal(random_) : common_[e - 1];
  }
}

void Trace::Next() {
  if (shape_.shift != 0 && micro_batches_ != 0 && micro_batches_ % shape_.shift == 0) Shift();
  ++micro_batches_;
  std::normal_distribution<double> normal;
  for (double& d : drift_) {
    d = shape_.memory * d + std::sqrt(1 - shape_.memory * shape_.memory) * normal(random_);
  }
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    history_[e] = history_[e] * 7 / 8 + batch_.tokens[e];
  }
  ChooseDynamic();
  const std::vector<double> chances = Chances();
  std::fill(batch_.tokens.begin(), batch_.tokens.end(), 0);
  for (uint32_t d = 0; d < shape_.devices; ++d) {
    Draw(d, chances);
    for (uint32_t e = 0; e < shape_.experts; ++e) {
      batch_.tokens[e] += by_source_[size_t{d} * shape_.experts + e];
    }
  }
}

}  // namespace rewire::bench
