// Measures the time of a plan for a micro-batch, and checks that ranks derive the same plan. Times
// are the thread's processor time, without waits for other processes. Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// Microseconds per micro-batch of 128 experts, sorted.
struct PlanTimes {
  // PlanNode(), which the balancer's thread runs in a round. Copies run at 450 GB/s, or 10 times
  // slower, when GEMMs do not hide them.
  std::vector<double> runtime, runtime_slow_copies;
  std::vector<double> balance;  // BalanceMoves() alone
};
// Experts have 72 MiB; rows have 12 KiB and take 155 ns. Empty if no plan has moved tokens.
[[nodiscard]] PlanTimes TimePlans(uint32_t devices, int batches);

// Returns each of `ranks` processes' hash over its plans for `inputs` random inputs.
[[nodiscard]] absl::StatusOr<std::vector<uint64_t>> HashPlans(int ranks, int64_t inputs);

}  // namespace rewire::bench
