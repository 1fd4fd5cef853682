// How fast a communicator's operations are issued, and how far ahead of the furthest member a cut
// is proposed so that nobody meets it undecided. Pure values; used by the leader and by the swap
// benchmark's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "reconfig/base/clock.h"

namespace rewire {

// For how long a busy machine may keep a thread of ours from running while the program's goes on.
inline constexpr Duration kDescheduled = milliseconds(25);
// So far ahead at most, over and above the configured margin: nobody waits for an hour because a
// burst was taken for the rate.
inline constexpr uint64_t kMostAhead = 4096;

class Pace {
 public:
  // Some member had issued so many operations; the highest counts.
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
  // Every look at every member gave the same number.
  [[nodiscard]] bool still() const { return still_ && since_ != Time{}; }
  // The furthest member's operations.
  [[nodiscard]] uint64_t issued() const { return issued_; }
  // The mean from the first look to the last, rounded up; 0 before the second look.
  [[nodiscard]] uint64_t During(Duration time) const {
    if (at_ <= since_) return 0;
    const double share = std::chrono::duration<double>(time) / (at_ - since_);
    return static_cast<uint64_t>(
        std::ceil(std::min(static_cast<double>(issued_ - first_) * share, 1e9)));
  }
  // The margin of a cut: at least `least` operations, and twice what is issued until the decision,
  // which takes `decision` as far as known, has reached everybody.
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

}  // namespace rewire
