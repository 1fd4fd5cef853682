// One run of layers of experts over processes of the simulated GPU, and what all its processes
// found. Whoever starts one has a single thread.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/moe-exec/layer_run.h"

namespace rewire::bench {

struct RunSetting {
  int64_t devices = 8;
  int64_t layers = 2;
  int64_t micro_batches = 12;
  int64_t step = 12;
  int64_t seed = 1;
  // Virtual time of planning in a forward round, with copies as they are and 10 times slower.
  uint64_t plan_ns = 0;
  uint64_t plan_ns_slow_copies = 0;
};

struct Outcome {
  std::vector<LayerRunResult> results;
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<uint8_t>> split;
  LayerRunResult sum{};
};

enum class Kind { kPlain, kBalanced, kBalancedSlowCopies };

[[nodiscard]] LayerRunOptions OptionsOf(const RunSetting& setting, Kind kind);
// Ends the program, naming the rank, where a process fails.
[[nodiscard]] Outcome Measure(const RunSetting& setting, Kind kind);

}  // namespace rewire::bench
