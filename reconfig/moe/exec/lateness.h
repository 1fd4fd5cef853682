// Adapts the copy budget to late copies: K late rounds in a row halve the budget. At 0 the layer
// runs without balancing. Thread-compatible.
#pragma once

#include <cstdint>

#include "reconfig/moe/exec/balancer_counts.h"

namespace rewire::moe {

class Lateness {
 public:
  Lateness(uint32_t copies, uint32_t in_a_row) : copies_(copies), in_a_row_(in_a_row) {}

  // Call at the end of a round with copies. Returns true if the round halved the budget.
  bool Count(bool late) {
    late_ = late ? late_ + 1 : 0;
    total_ += late ? 1 : 0;
    if (late_ < in_a_row_) return false;
    late_ = 0;
    copies_ /= 2;
    if (copies_ == 0 && off_ == Off::kNo) off_ = Off::kLate;
    return true;
  }
  // Call when copies fail; sets the budget to 0.
  void TurnOff() {
    copies_ = 0;
    if (off_ == Off::kNo) off_ = Off::kCopies;
  }

  // Returns the budget of copied experts in one round.
  [[nodiscard]] uint32_t copies() const { return copies_; }
  [[nodiscard]] uint64_t total() const { return total_; }
  [[nodiscard]] Off off() const { return off_; }

 private:
  uint32_t copies_;
  const uint32_t in_a_row_;
  uint32_t late_ = 0;
  uint64_t total_ = 0;
  Off off_ = Off::kNo;
};

}  // namespace rewire::moe
