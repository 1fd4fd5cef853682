// The re-layout part of `./dev bench moe`: compares planning time and the cost of placements with
// LAER-MoE's planner. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// Setting: 32 experts; nodes of 8 devices; tokens uniform between 0 and 999, as LAER measured.
struct RelayoutTime {
  uint32_t devices = 0;
  uint32_t capacity = 0;
  double laer_seconds = 0;  // published, on LAER's authors' machine
  // Medians of the thread's processor time. In production a plan is made from five iterations, each
  // routed by itself. LAER's planner takes one matrix, the sum of five.
  double our_seconds = 0;
  double our_seconds_one_iteration = 0;
};
// Returns one entry for each row of data/planner_seconds.csv.
[[nodiscard]] absl::StatusOr<std::vector<RelayoutTime>> TimeRelayouts(
    const std::string& planner_seconds_csv, int repeats);

// Returns the costs of our placements over LAER's, in ascending order. Inputs have 1 to 8 nodes of
// 1 to 8 devices and 2 to 64 experts. Popularity differs by expert, node and device, or not at all.
[[nodiscard]] absl::StatusOr<std::vector<double>> CompareRelayoutCosts(int inputs, uint64_t seed);

// Costs of our placements over LAER's, in ascending order, each placed by five iterations.
struct OutOfSample {
  std::vector<double> placed_by;  // on these five iterations, summed
  std::vector<double> next;       // on the next iteration
  double no_dearer = 0;           // share of inputs where ours costs no more on the next iteration
};
// CompareRelayoutCosts()'s inputs: 64 % of the popularity's variance stays; the rest is new.
[[nodiscard]] absl::StatusOr<OutOfSample> CompareRelayoutsOutOfSample(int inputs, uint64_t seed);

// Compares placements for the busiest link with those for the sum (moe::Objective), on inputs of 2
// to 8 nodes where either placement sends tokens between nodes.
struct ObjectivesCompared {
  double no_busier = 0;  // share of inputs in which the busiest link has no more tokens
  double computed = 0;   // tokens of the busiest device, relative to the other placement; the mean
};
[[nodiscard]] absl::StatusOr<ObjectivesCompared> CompareObjectives(int inputs, uint64_t seed);

}  // namespace rewire::bench
