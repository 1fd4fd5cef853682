// How even each way of balancing leaves a trace of micro-batches. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace rewire::bench {

// LLEP is shown with its default gate (lambda = 1.3) and without a gate (lambda = 1.0).
enum class Way { kNone, kShadowing, kEplb, kSplit, kSplitUngated, kGreedy, kOurs, kBound };
inline constexpr std::array<std::string_view, 8> kWayNames = {
    "none",           "FasterMoE shadowing", "EPLB",   "LLEP, gate 1.3",
    "LLEP, gate 1.0", "FEPLB greedy",        "Rewire", "LP bound"};

// Time of a device's grouped GEMM: FEPLB's tables have 0.14 to 0.17 us for a token in all cells,
// and each expert beside its own costs the start of one more.
struct GemmTime {
  double token_us = 0.155;
  double expert_us = 5;
};

// Of one seed: means over its micro-batches.
struct Evenness {
  double token_straggler = 0;    // tokens that the busiest device has above the mean
  double gemm_straggler_us = 0;  // the same of its time
  double copies = 0;             // of experts, in a micro-batch
  bool worse = false;            // than none, in some micro-batch
};

// All ways on the same micro-batches, by Way. Ours may make no more copies than the greedy made in
// the same micro-batch.
[[nodiscard]] std::array<Evenness, kWayNames.size()> MeasureSeed(uint32_t devices, uint64_t seed,
                                                                 int batches, const GemmTime& gemm);

}  // namespace rewire::bench
