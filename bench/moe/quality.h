// Measures how evenly each way of balancing divides a trace of micro-batches. Thread-compatible.
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

// Time of a device's grouped GEMM. FEPLB's tables have 0.14 to 0.17 us per token in all cells. Each
// expert besides the device's own experts costs one more kernel start. An own expert whose tokens
// all move away saves a kernel start.
struct GemmTime {
  double token_us = 0.155;
  double expert_us = 5;
};

// Results of one seed: means over its micro-batches.
struct Evenness {
  double token_straggler = 0;    // tokens of the busiest device above the mean
  double gemm_straggler_us = 0;  // the same for the GEMM time
  double copies = 0;             // copied experts in a micro-batch
  bool worse = false;            // worse than no balancing in some micro-batch
};

// Measures all ways on the same micro-batches, indexed by Way. kOurs may make no more copies than
// kGreedy made in the same micro-batch.
[[nodiscard]] std::array<Evenness, kWayNames.size()> MeasureSeed(uint32_t devices, uint64_t seed,
                                                                 int batches, const GemmTime& gemm);

}  // namespace rewire::bench
