// Counts of one balancer, and its part in the counters of the process. Thread-compatible.
#pragma once

#include <cstdint>

namespace rewire::moe {

// The reason why a balancer moves nothing any more.
enum class Off : uint8_t {
  kNo,
  kLate,    // copies were late until the budget reached 0
  kCopies,  // a copy could not be put into a stream
  kBroken,  // the balancer failed, here or elsewhere in the node; every call returns the error
};

struct BalancerCounts {
  uint64_t rounds = 0;
  uint64_t given = 0;     // moves of own experts to helpers
  uint64_t received = 0;  // moves of others' experts to this device
  uint64_t given_rows = 0;
  uint64_t copied_bytes = 0;  // between devices, copied by this process
  uint64_t late_rounds = 0;
  uint32_t copies = 0;  // the remaining budget; 0: the balancer moves nothing any more
  Off off = Off::kNo;
};

// One balancer's part of the process's counters (reconfig/base/counters.h).
class CountsPart {
 public:
  CountsPart() = default;
  ~CountsPart();  // removes the budget; the other counts stay
  CountsPart(const CountsPart&) = delete;
  CountsPart& operator=(const CountsPart&) = delete;

  void Set(const BalancerCounts& now);

 private:
  BalancerCounts last_;
};

}  // namespace rewire::moe
