// How long a leader that has just started waits for the members of the stored world to come back.
// Part of the leader. Pure; thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "reconfig/base/clock.h"

namespace rewire::elastic {

class Recovery {
 public:
  // grace: for the members to reconnect. silence: REWIRE_SILENCE_MS.
  Recovery(Duration grace, Duration silence) : grace_(grace), silence_(silence) {}

  void Begin(Time now) { until_ = now + grace_; }
  // The silence of all members counts for no deadline.
  void Postpone(Duration gap) {
    if (until_) *until_ += gap;
  }
  // Call after Begin(), until true is returned. True: the wait has ended, because all members are
  // back or those that are missing had their time. missing: how many of the world's `members` are
  // not back. all_silent: no member speaks.
  [[nodiscard]] bool TryEnd(Time now, size_t missing, size_t members, bool all_silent) {
    if (missing > 0 && !MayEnd(now, missing, members, all_silent)) return false;
    until_.reset();
    return true;
  }
  // Returns nullopt when nothing is waited for.
  [[nodiscard]] std::optional<Time> deadline() const { return until_; }

 private:
  // The number of grace times that a new leader waits for the first member of a world.
  static constexpr uint32_t kTurns = 12;

  bool MayEnd(Time now, size_t missing, size_t members, bool all_silent) {
    if (missing + 1 == members && !first_) {
      // The first member is back: the others have the grace time from now on.
      first_ = true;
      until_ = now + grace_;
    }
    if (now < *until_) return false;
    const bool nobody = missing == members;
    if (nobody && ++turns_ < kTurns) {
      until_ = now + grace_;  // the host has stalled, or all are dead
      return false;
    }
    if (!nobody && all_silent) {
      until_ = now + silence_;  // a stalled host costs no member and no job
      return false;
    }
    return true;
  }

  const Duration grace_;
  const Duration silence_;
  std::optional<Time> until_;
  uint32_t turns_ = 0;  // grace times for which no member has come back
  bool first_ = false;  // a member has come back
};

}  // namespace rewire::elastic
