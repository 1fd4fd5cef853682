// Measures the runtime's plan on micro-batches whose hot experts change every time. The dynamic
// experts come from the micro-batch's own counts, as in the balancer, or from earlier
// micro-batches, as in FEPLB and in earlier versions of the balancer. Thread-compatible.
#pragma once

#include <cstdint>

namespace rewire::bench {

// Results of one seed: means over its micro-batches of the busiest device's tokens over the mean.
struct Shifting {
  double none = 0;
  double by_history = 0;
  double by_counts = 0;
  double worst_by_counts = 0;  // maximum over all micro-batches
  double copies = 0;           // copied experts, with dynamic experts chosen by counts
};

// Setting: 128 experts, 4 of each device dynamic. The popularity of all experts is drawn anew for
// every second micro-batch, so the history is wrong for half of the micro-batches.
[[nodiscard]] Shifting MeasureShifting(uint32_t devices, double sigma, uint64_t seed, int batches);

}  // namespace rewire::bench
