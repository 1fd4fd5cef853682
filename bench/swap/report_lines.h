// One member's measurements, sent to the leader as one JSON object. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// One swap on one member: the stretch of operations from the warm index to the cut, and the stretch
// of the same length after the cut. For comparison, as many undisturbed operations before the
// build. Every stretch is a whole number of rounds of the operations' kinds, so that the times are
// comparable. Times are the loop's: from the end of the previous operation to the end of the last
// one.
struct SwapSeen {
  uint64_t epoch = 0;
  double warm_us = 0;          // the stretch that begins at the warm index
  double cut_us = 0;           // the stretch that begins at the cut
  double before_us = 0;        // of the two undisturbed stretches together
  double build_us_per_op = 0;  // while the next generation was built
  double longest_us = 0;       // the slowest operation of the window
  double cut_cpu_us = 0;       // thread CPU time of the call at the cut
  // Bit i: operation i of the window was slower than the p99 of undisturbed operations of its kind.
  uint64_t delayed = 0;
  uint64_t delayed_before = 0;  // the same of the undisturbed window
};

struct MemberReport {
  uint64_t issued = 0;
  uint64_t completed = 0;
  uint64_t wrong = 0;
  uint64_t stale = 0;
  uint64_t host_waits = 0;
  uint64_t swaps = 0;
  uint64_t nice_refused = 0;
  int64_t leaked_fds = 0;
  int64_t leaked_threads = 0;
  double build_ms = 0;  // mean
  std::vector<SwapSeen> seen;
  std::vector<double> init_us;      // foreground destroy, init, first operation together
  std::vector<double> shrink_us;    // foreground shrink, first operation together
  double median_op_us = 0;          // of the first operation's kind, undisturbed
  double op_spread_us = 0;          // and the distance between its quartiles
  std::vector<double> call_cpu_us;  // of ordinary calls: p50, p99

  [[nodiscard]] std::string Encode() const;
  static absl::StatusOr<MemberReport> Decode(const std::string& text);
};

}  // namespace rewire::bench
