// How long a plan for a micro-batch takes, and whether ranks come to the same. Times are the
// thread's processor time, which other processes of a shared machine do not lengthen by waiting.
// One thread; ranks are processes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// Microseconds for each of so many micro-batches of 128 experts, sorted.
struct PlanTimes {
  // PlanNode(), which the balancer's thread computes for a round: copies at 450 GB/s, and 10 times
  // slower, where they do not hide behind GEMMs.
  std::vector<double> runtime, runtime_slow_copies;
  std::vector<double> balance;  // BalanceMoves() alone
};
// Experts of 72 MiB, rows of 12 KiB that take 155 ns. Nothing where no plan has moved anything.
[[nodiscard]] PlanTimes TimePlans(uint32_t devices, int batches);

// A hash over the plans for so many random inputs, made by each of `ranks` processes for itself.
[[nodiscard]] absl::StatusOr<std::vector<uint64_t>> HashPlans(int ranks, int64_t inputs);

}  // namespace rewire::bench
