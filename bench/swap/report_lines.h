// What a member measured, as it is sent to the leader: one JSON object. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// One swap on one member. Indices and times of the operations from the warm index to eight behind
// the cut, the only ones that a swap can delay.
struct SwapSeen {
  uint64_t epoch = 0;
  double excess_us = 0;   // beyond the medians of undisturbed operations of the same kind
  double longest_us = 0;  // the slowest operation, whole
  double cut_cpu_us = 0;  // thread CPU time of the call at the cut
  double delayed = 0;     // operations slower than the p99 of undisturbed ones of the same kind
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
  std::vector<double> init_us;    // foreground destroy, init, first operation: whole
  std::vector<double> shrink_us;  // foreground shrink, first operation: whole
  double median_op_us = 0;        // of the first operation's kind, undisturbed

  [[nodiscard]] std::string Encode() const;
  static absl::StatusOr<MemberReport> Decode(const std::string& text);
};

}  // namespace rewire::bench
