// What happened in each transition, as the agent saw it: phases, spans per member, bytes, pauses.
//
// Fed with every message that goes to or comes from a member and every note of the leader; it
// decides nothing. The last kKept transitions stay. One thread: the agent's.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/transition/leader_action.h"
#include "reconfig/transition/messages.h"

namespace rewire {

struct TransitionSpan {
  std::optional<MemberId> member;  // none: the leader
  std::string name;
  Time begin{};
  std::optional<Time> end;  // none: still going on
};

struct TransitionEntry {
  uint64_t number = 0;
  TransitionKind kind = TransitionKind::kSwap;
  Epoch from = 0;
  Epoch to = 0;
  Time begin{};
  std::optional<Time> entered;  // every member is in the new world; what follows is retirement
  std::optional<Time> end;
  bool committed = false;
  std::string summary;           // what was done
  std::string result;            // why it failed; empty when it did not
  Phase phase = Phase::kSteady;  // before its first
  std::vector<MemberId> members_before;
  std::vector<MemberId> members_after;
  std::vector<TransitionSpan> spans;  // in order of their beginning
  struct Part {
    uint64_t bytes_in = 0;
    uint64_t bytes_out = 0;
    std::map<CommunicatorId, uint64_t> host_waits;  // of those that have passed their cut
    uint64_t pause_ns = 0;
  };
  std::map<MemberId, Part> parts;

  [[nodiscard]] TransitionSpan* Open(std::optional<MemberId> member, std::string_view name);
  // Members with a span that has not ended, with its name.
  [[nodiscard]] std::map<MemberId, std::string> WaitingFor() const;
};

std::string_view KindName(TransitionKind kind);

class TransitionLog {
 public:
  static constexpr size_t kKept = 16;

  void OnSent(Time now, MemberId member, const Message& message);
  void OnReceived(Time now, MemberId member, const Message& message);
  void OnNote(Time now, const Note& note, Epoch current);
  // The leader has nothing under way: what was, has ended.
  void OnIdle(Time now);
  // Those that have ended since the last call, in order.
  std::vector<TransitionEntry> TakeEnded() { return std::exchange(ended_, {}); }

  // The one under way; nullptr when there is none.
  [[nodiscard]] const TransitionEntry* current() const;
  // Ended or not, oldest first.
  [[nodiscard]] const std::deque<TransitionEntry>& entries() const { return entries_; }
  // The last that was committed or has ended, or the last of that target epoch; nullptr when it is
  // not kept.
  [[nodiscard]] const TransitionEntry* Find(std::optional<Epoch> epoch) const;

 private:
  void Begin(Time now, std::optional<MemberId> member, std::string_view name);
  void End(Time now, std::optional<MemberId> member, std::string_view name);
  void OnPosition(Time now, MemberId member, const Position& position);
  TransitionEntry* Running();
  void Close(Time now, TransitionEntry* entry);

  std::deque<TransitionEntry> entries_;
  std::vector<TransitionEntry> ended_;
};

}  // namespace rewire
