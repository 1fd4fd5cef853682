// What a member's operations say about its swaps: the stretch around each cut beside an undisturbed
// stretch of the same run. Pure; no thread.
//
// Every swap has a quiet stretch before its build, in which nothing but the load runs (the leader
// asks for counters at its ends only). The last round trips of kinds in its middle are the swap's
// undisturbed window, of the same length and the same kinds as the window around the cut. All quiet
// stretches together say what is ordinary: the p99 of each kind is from there, so what disturbs
// this machine anyhow is in it.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/swap/report_lines.h"

namespace rewire::bench {

struct Operation {
  float us = 0;
  float cpu_us = 0;
  double end_us = 0;  // of the iteration, since the loop began
};

// Where a swap lies among the member's operations.
struct SwapPlace {
  uint64_t epoch = 0;
  uint64_t quiet_from = 0;   // operations issued when the leader began to keep quiet
  uint64_t quiet_until = 0;  // and when the build began
  uint64_t built = 0;        // and when it was done
  uint64_t warm = 0;
  uint64_t cut = 0;
};

// Operations at either end of a quiet stretch that the leader's questions may touch.
inline constexpr uint64_t kAside = 16;

// Fills in what the report says of operations: the ordinary ones, and every swap.
void DescribeOperations(const std::vector<Operation>& operations,
                        const std::vector<SwapPlace>& swaps, MemberReport* report);

}  // namespace rewire::bench
