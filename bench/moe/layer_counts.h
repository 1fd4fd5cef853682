// Generates synthetic counts of one layer's micro-batches on several nodes, as input for
// re-layouts. Every expert has a log-normal popularity that stays. Each micro-batch adds a
// temporary popularity, for all devices and for each device. No expert gets more than one of each
// token's choices. The same seed gives the same counts. Thread-compatible.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "reconfig/moe/plan/counts.h"

namespace rewire::bench {

struct LayerShape {
  uint32_t devices = 32;
  uint32_t experts = 16;
  uint32_t tokens = 16384;  // tokens of each device and micro-batch
  uint32_t top = 4;         // experts of each token
  // Standard deviations of the logarithm of popularity.
  double staying = 1;    // for all micro-batches of the layer
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
