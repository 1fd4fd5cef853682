// Measures how fast a communicator's operations are issued, and derives how far ahead of the
// furthest member a cut is proposed, so that no member meets an undecided cut. Pure values for the
// leader and for the swap benchmark. Thread-compatible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "reconfig/base/clock.h"

namespace rewire::elastic {

// The time for which a busy machine may deschedule a Rewire thread while the program's thread runs.
inline constexpr Duration kDescheduled = milliseconds(25);
// The limit of a margin that is derived from the rate; a configured margin may be larger. Without
// the limit, a burst that is taken for the rate could delay a cut by an hour.
inline constexpr uint64_t kMostAhead = 4096;

class Pace {
 public:
  // Records that some member had issued `issued` operations; the highest number counts.
  void Saw(Time now, uint64_t issued) {
    if (since_ == Time{}) {
      since_ = now;
      first_ = issued;
    }
    still_ = still_ && issued == first_;
    if (issued < issued_) return;
    issued_ = issued;
    at_ = now;
  }
  // Returns whether every look at every member gave the same number.
  [[nodiscard]] bool still() const { return still_ && since_ != Time{}; }
  // Returns the number of operations of the furthest member.
  [[nodiscard]] uint64_t issued() const { return issued_; }
  // Returns the mean rate over all looks times `time`, rounded up; 0 before the second look.
  [[nodiscard]] uint64_t During(Duration time) const {
    if (at_ <= since_) return 0;
    const double share = std::chrono::duration<double>(time) / (at_ - since_);
    return static_cast<uint64_t>(
        std::ceil(std::min(static_cast<double>(issued_ - first_) * share, 1e9)));
  }
  // Returns the margin of a cut: at least `least` operations, and twice the number of operations
  // issued until all members have the decision. `decision` is the known duration of a decision.
  [[nodiscard]] uint64_t Margin(uint64_t least, Duration decision) const {
    return std::max(least, std::min(2 * During(decision + kDescheduled), kMostAhead));
  }

 private:
  Time since_{};
  Time at_{};
  uint64_t first_ = 0;
  uint64_t issued_ = 0;
  bool still_ = true;
};

}  // namespace rewire::elastic
