// Synthetic router counts for benchmarks: log-normal popularity of experts, one part that stays and
// one that drifts (first-order autoregressive), as papers on expert balancing report it. Each token
// goes to `top` different experts. The same seed gives the same trace. One thread.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "reconfig/moe/batch.h"

namespace rewire::bench {

struct TraceShape {
  uint32_t devices = 8;
  uint32_t experts = 128;
  uint32_t tokens = 4096;  // of each device and micro-batch
  uint32_t top = 8;
  double sigma = 0.5;    // of the logarithm of popularity
  double shared = 0.08;  // of its variance, what `block` neighbouring experts have in common
  uint32_t block = 64;
  double memory = 0.8;   // of what drifts, from one micro-batch to the next
  uint32_t dynamic = 4;  // experts of each device that may be moved
  // Micro-batches after which every expert gets a new popularity; 0: never.
  uint32_t shift = 0;
};

class Trace {
 public:
  Trace(const TraceShape& shape, uint64_t seed);
  // The next micro-batch. The dynamic experts are those with most tokens in the ones before.
  void Next();

  [[nodiscard]] const moe::Batch& batch() const { return batch_; }
  // Tokens of device d for expert e at [d * experts + e].
  [[nodiscard]] const std::vector<uint32_t>& by_source() const { return by_source_; }
  // Sums of the micro-batches before this one, faded.
  [[nodiscard]] const std::vector<uint64_t>& history() const { return history_; }

 private:
  std::vector<double> Chances();
  void Draw(uint32_t device, const std::vector<double>& chances);
  void ChooseDynamic();
  void Shift();

  const TraceShape shape_;
  std::mt19937_64 random_;
  uint64_t micro_batches_ = 0;
  std::vector<double> common_;  // of each expert's block
  std::vector<double> fixed_;
  std::vector<double> drift_;
  std::vector<uint64_t> history_;
  std::vector<uint32_t> by_source_;
  moe::Batch batch_;
};

}  // namespace rewire::bench
