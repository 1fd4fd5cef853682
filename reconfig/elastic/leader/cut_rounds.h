// The points at which members stop or switch: how far ahead of the furthest member a cut is
// proposed, so that no member meets an undecided cut, and the rounds of one transition's proposals.
// Pure values for the leader and, of Pace, for the swap benchmark. Thread-compatible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/elastic/leader/positions.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

// The time for which a busy machine may deschedule a Rewire thread while the program's thread runs.
inline constexpr Duration kDescheduled = milliseconds(25);
// The limit of a margin that is derived from the rate; a configured margin may be larger. Without
// the limit, a burst that is taken for the rate could delay a cut by an hour.
inline constexpr uint64_t kMostAhead = 4096;

// Measures how fast a communicator's operations are issued.
class Pace {
 public:
  // Records that some member had issued `issued` operations; the highest number counts.
  void Record(Time now, uint64_t issued) {
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

// The proposals of one transition, round by round. Every member of the old world pledges each.
class CutRounds {
 public:
  // Records the numbers of operations that a member had issued.
  void Record(Time now, const std::vector<CommunicatorCounter>& counters);

  // Returns the cut of a communicator, by the rules in docs/protocol.md, "Pending swaps". at_next:
  // an idle communicator may switch at its next operation. least: the margin in operations. commit:
  // the duration of a compare-and-swap.
  [[nodiscard]] Cut ChooseCut(const CommunicatorId& communicator, const Positions& positions,
                              bool at_next, uint64_t least, Duration commit) const;
  // Returns the update before which all members stop. furthest: the number of updates that the
  // furthest member has reported. commit: the duration of a compare-and-swap that comes before it.
  [[nodiscard]] Cut ChooseStep(uint64_t furthest, std::optional<Duration> commit) const;

  // Begins the present round with these cuts.
  void Propose(Time now, std::vector<Cut> cuts);
  // A member has answered the present round, with or without a pledge.
  void Answered(Time now) { round_trip_ = std::max(round_trip_, now - proposed_at_); }
  void Pledge(MemberId member) { pledged_.insert(member); }
  // Ends the round: the cut of this communicator was refused or, with nullopt, the cuts of `all`.
  // Returns the number of rounds that have ended.
  uint32_t Refuse(const std::optional<CommunicatorId>& communicator,
                  const std::set<CommunicatorId>& all);

  [[nodiscard]] uint32_t round() const { return round_; }
  [[nodiscard]] const std::vector<Cut>& cuts() const { return cuts_; }
  [[nodiscard]] const std::set<MemberId>& pledged() const { return pledged_; }

 private:
  [[nodiscard]] Pace PaceOf(const CommunicatorId& communicator) const;

  std::map<CommunicatorId, Pace> paces_;
  uint32_t round_ = 0;
  std::map<CommunicatorId, uint32_t> refusals_;  // refusals of each communicator's cut
  Time proposed_at_{};
  Duration round_trip_{};  // the slowest answer so far
  std::vector<Cut> cuts_;
  std::set<MemberId> pledged_;
};

}  // namespace rewire::elastic
