// Synthetic counts of one layer's micro-batches on several nodes, to try re-layouts on: every
// expert has a log-normal popularity that stays, and one of its own in each micro-batch, for all
// devices and for each. No expert gets more than every token once. The same seed gives the same
// counts. One thread.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "reconfig/moe/counts.h"

namespace rewire::bench {

struct LayerShape {
  uint32_t devices = 32;
  uint32_t experts = 16;
  uint32_t tokens = 16384;  // of each device and micro-batch
  uint32_t top = 4;         // experts of a token
  // Of the logarithm of popularity.
  double staying = 1;    // for as long as the layer is looked at
  double passing = 0.1;  // for one micro-batch
  double local = 0.1;    // for one micro-batch of one device
};

class LayerCounts {
 public:
  LayerCounts(const LayerShape& shape, uint64_t seed);
  [[nodiscard]] moe::Counts Next();

 private:
  const LayerShape shape_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::vector<double> staying_;
};

}  // namespace rewire::bench
