// Measures how much 10 times slower copies lengthen the critical path, for several seeds, intervals
// of weight changes and numbers of layers. Called by moe-exec's main(); the caller must be
// single-threaded, because the runs fork.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/moe-exec/measured_run.h"

namespace rewire::bench {

struct SweptSetting {
  std::string name;  // end of the setting's JSON keys
  int64_t layers = 0;
  int64_t micro_batches = 0;
  int64_t step = 0;  // micro-batches between two changes of the weights
  // One value for each seed, from seed 1. growth: critical path with slow copies / with normal
  // copies - 1. The speed-ups compare with the critical path without balancing.
  std::vector<double> growth, speedup, speedup_slow_copies;
};

// Weights change every 12, 4, 2 and 1 micro-batches with 2 layers, and every 12 and 1 with 16
// layers, whose experts do not all fit the slots. `base` has the values that all settings share.
[[nodiscard]] std::vector<SweptSetting> SweepGrowth(const RunSetting& base, int64_t seeds);

}  // namespace rewire::bench
