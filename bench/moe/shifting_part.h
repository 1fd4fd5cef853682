// How even the runtime's plan leaves micro-batches whose hot experts are others every time: with
// dynamic experts from the micro-batch's own counts, as the balancer chooses them, and from the
// micro-batches before, as it did earlier and as FEPLB does. Single-threaded.
#pragma once

#include <cstdint>

namespace rewire::bench {

// One seed: the means over its micro-batches of the busiest device's tokens over the mean.
struct Shifting {
  double none = 0;
  double by_history = 0;
  double by_counts = 0;
  double worst_by_counts = 0;  // of all micro-batches
  double copies = 0;           // of experts, by counts
};

// 128 experts, 4 of each device dynamic; the popularity of all experts is drawn anew for every
// second micro-batch, so that the history misleads in one half of them.
[[nodiscard]] Shifting MeasureShifting(uint32_t devices, double sigma, uint64_t seed, int batches);

}  // namespace rewire::bench
