// Runs layers of experts in processes on the simulated GPU and collects the results of all
// processes, for the benchmark moe-exec. The caller must be single-threaded, because the run forks.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/moe-exec/layer_run.h"

namespace rewire::bench {

struct RunSetting {
  int64_t devices = 8;
  int64_t layers = 2;
  int64_t micro_batches = 12;
  int64_t step = 12;  // micro-batches between two changes of the weights
  int64_t seed = 1;
  // Virtual time of planning in a forward round, with normal and with 10 times slower copies.
  uint64_t plan_ns = 0;
  uint64_t plan_ns_slow_copies = 0;
};

struct Outcome {
  // By rank; the inner order is that of GradientsOf() and SplitOf().
  std::vector<LayerRunResult> results;
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<uint8_t>> split;
  LayerRunResult sum{};  // sums over all ranks, of the numbers that the benchmark reports
};

enum class Kind { kPlain, kBalanced, kBalancedSlowCopies };

[[nodiscard]] LayerRunOptions OptionsOf(const RunSetting& setting, Kind kind);
// Runs all processes and waits for them. Ends the program if a process fails; the message names the
// rank.
[[nodiscard]] Outcome Measure(const RunSetting& setting, Kind kind);

}  // namespace rewire::bench
