// How long a plan for a micro-batch takes, and whether ranks come to the same. One thread; ranks
// are processes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// Microseconds for each of so many micro-batches of 128 experts on 8 devices, sorted.
[[nodiscard]] std::vector<double> TimePlans(int batches);

// A hash over the plans for so many random inputs, made by each of `ranks` processes for itself.
[[nodiscard]] absl::StatusOr<std::vector<uint64_t>> HashPlans(int ranks, int64_t inputs);

}  // namespace rewire::bench
