// What `./dev bench moe` measures of re-layouts: how long ours takes beside LAER-MoE's planner, and
// how much its placements cost beside LAER's. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// 32 experts; nodes of 8 devices; tokens even between 0 and 999, as LAER's authors measure.
struct RelayoutTime {
  uint32_t devices = 0;
  uint32_t capacity = 0;
  double laer_seconds = 0;  // published, on its authors' machine
  // The thread's processor time, medians. In production a plan is made from five iterations, each
  // routed by itself. LAER's planner takes one matrix, the sum of five.
  double our_seconds = 0;
  double our_seconds_one_iteration = 0;
};
// One for each row of data/planner_seconds.csv.
[[nodiscard]] absl::StatusOr<std::vector<RelayoutTime>> TimeRelayouts(
    const std::string& planner_seconds_csv, int repeats);

// Costs of our placements over those of LAER's, in ascending order, for inputs of 1 to 8 nodes of 1
// to 8 devices, 2 to 64 experts, and popularity that differs by expert, node and device, or not.
[[nodiscard]] absl::StatusOr<std::vector<double>> CompareRelayoutCosts(int inputs, uint64_t seed);

// Costs of our placements over those of LAER's, in ascending order, each placed by five iterations.
struct OutOfSample {
  std::vector<double> placed_by;  // on these five, summed
  std::vector<double> next;       // on the iteration after them
  double no_dearer = 0;           // share of inputs where ours costs no more on the next one
};
// Such inputs, of which 64 % of the popularity's variance stays and the rest is new each iteration.
[[nodiscard]] absl::StatusOr<OutOfSample> CompareRelayoutsOutOfSample(int inputs, uint64_t seed);

// Our placements for the busiest link beside those for the sum (moe::Objective), on such inputs of
// 2 to 8 nodes where either has tokens between nodes.
struct ObjectivesCompared {
  double no_busier = 0;  // share of them in which the busiest link has no more
  double computed = 0;   // by the busiest device, relative to the other's; the mean
};
[[nodiscard]] absl::StatusOr<ObjectivesCompared> CompareObjectives(int inputs, uint64_t seed);

}  // namespace rewire::bench
