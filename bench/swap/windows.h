// Derives a swap's effect from a member's operations: the stretch around each cut is compared with
// an undisturbed stretch of the same run. Pure.
//
// Every swap has a quiet stretch before its build, in which only the load runs; the leader asks for
// counters only at the ends of the stretch. The last round trips of kinds in its middle are the
// swap's undisturbed window, with the length and kinds of the window around the cut. All quiet
// stretches together define the ordinary times: they give the p99 of each kind, which therefore
// includes this machine's own disturbances.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/swap/report_lines.h"

namespace rewire::bench {

struct Operation {
  float us = 0;
  float cpu_us = 0;
  double end_us = 0;  // end of the iteration, since the start of the loop
};

// A swap's position among the member's operations.
struct SwapPlace {
  uint64_t epoch = 0;
  uint64_t quiet_from = 0;   // operations issued at the start of the quiet stretch
  uint64_t quiet_until = 0;  // at the start of the build
  uint64_t built = 0;        // at the end of the build
  uint64_t warm = 0;
  uint64_t cut = 0;
};

// Operations at either end of a quiet stretch that the leader's queries may disturb.
inline constexpr uint64_t kAside = 16;

// Fills in the report's values about ordinary operations and every swap.
void DescribeOperations(const std::vector<Operation>& operations,
                        const std::vector<SwapPlace>& swaps, MemberReport* report);

}  // namespace rewire::bench
