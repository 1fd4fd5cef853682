// Generates synthetic router counts for benchmarks. Experts' popularity is log-normal, with a
// constant and a drifting part (first-order autoregressive), as papers report. Each token goes to
// `top` different experts. The same seed gives the same trace. Thread-compatible.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "reconfig/moe/plan/batch.h"

namespace rewire::bench {

struct TraceShape {
  uint32_t devices = 8;
  uint32_t experts = 128;
  uint32_t tokens = 4096;  // tokens of each device and micro-batch
  uint32_t top = 8;
  double sigma = 0.5;    // standard deviation of the logarithm of popularity
  double shared = 0.08;  // share of the variance that `block` neighbouring experts have in common
  uint32_t block = 64;
  double memory = 0.8;   // autocorrelation of the drifting part between micro-batches
  uint32_t dynamic = 4;  // experts of each device that may be moved
  // Number of micro-batches after which every expert gets a new popularity; 0: never.
  uint32_t shift = 0;
};

class Trace {
 public:
  Trace(const TraceShape& shape, uint64_t seed);
  // The next micro-batch. The dynamic experts are those with most earlier tokens.
  void Next();

  [[nodiscard]] const moe::Batch& batch() const { return batch_; }
  // Returns the tokens of device d for expert e at [d * experts + e].
  [[nodiscard]] const std::vector<uint32_t>& by_source() const { return by_source_; }
  // Returns the faded sums of the earlier micro-batches.
  [[nodiscard]] const std::vector<uint64_t>& history() const { return history_; }

 private:
  std::vector<double> Chances();
  void Draw(uint32_t device, const std::vector<double>& chances);
  void ChooseDynamic();
  void Shift();

  const TraceShape shape_;
  std::mt19937_64 random_;
  uint64_t micro_batches_ = 0;
  std::vector<double> common_;  // common popularity of each expert's block
  std::vector<double> fixed_;
  std::vector<double> drift_;
  std::vector<uint64_t> history_;
  std::vector<uint32_t> by_source_;
  moe::Batch batch_;
};

}  // namespace rewire::bench
