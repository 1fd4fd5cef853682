// Measures the growth of the critical path with copies 10 times slower, over several seeds, steps
// of the weights and numbers of layers. For the single thread of the benchmark's main().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/moe-exec/measured_run.h"

namespace rewire::bench {

struct SweptSetting {
  std::string name;  // the name in the JSON keys
  int64_t layers = 0;
  int64_t micro_batches = 0;
  int64_t step = 0;
  // One value for each seed, from seed 1.
  std::vector<double> growth, speedup, speedup_slow_copies;
};

// Weights change every 12, 4, 2 and 1 micro-batches with 2 layers, and every 12 and 1 with 16
// layers, whose experts do not all fit the slots. `base` has the values that all settings share.
[[nodiscard]] std::vector<SweptSetting> SweepGrowth(const RunSetting& base, int64_t seeds);

}  // namespace rewire::bench
