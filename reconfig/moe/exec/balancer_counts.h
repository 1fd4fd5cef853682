// What a balancer has done, and what all balancers of this process have: the agent's metrics of a
// member. Any thread.
#pragma once

#include <cstdint>

namespace rewire::moe {

// Why a balancer moves nothing any more.
enum class Off : uint8_t {
  kNo,
  kLate,    // copies were late until nothing was left of the budget
  kCopies,  // one could not be put into a stream
  kBroken,  // it failed, here or elsewhere in the node: every call says so
};

struct BalancerCounts {
  uint64_t rounds = 0;
  uint64_t given = 0;     // moves of own experts that were made
  uint64_t received = 0;  // moves of others' experts to here
  uint64_t given_rows = 0;
  uint64_t copied_bytes = 0;  // between devices, by this process
  uint64_t late_rounds = 0;
  uint32_t copies = 0;  // the budget that is left; 0: nothing is moved any more
  Off off = Off::kNo;
};

// Since the process began.
struct ProcessCounts {
  uint64_t rounds = 0;
  uint64_t given = 0;
  uint64_t copied_bytes = 0;
  uint64_t late_rounds = 0;
  uint64_t copies = 0;  // of the balancers that are there now
  // How many have been turned off.
  uint64_t off_late = 0;
  uint64_t off_copies = 0;
  uint64_t off_broken = 0;
};

// Waits for no balancer: they say themselves how far they are, at the end of each round.
[[nodiscard]] ProcessCounts CountsOfProcess();

// A balancer's part of that.
class CountsPart {
 public:
  CountsPart() = default;
  ~CountsPart();  // its budget goes, what it has done stays
  CountsPart(const CountsPart&) = delete;
  CountsPart& operator=(const CountsPart&) = delete;

  // One thread at a time.
  void Set(const BalancerCounts& now);

 private:
  BalancerCounts last_;
};

}  // namespace rewire::moe
