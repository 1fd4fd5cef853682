// Records each transition as the agent saw it: phases, spans per member, bytes, pauses.
//
// The agent passes in every message to or from a member and every note of the leader. The log
// decides nothing and keeps the last kKept transitions. Owned by the agent's thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/elastic/leader/leader_action.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::control {

struct TransitionSpan {
  std::optional<MemberId> member;  // nullopt: the leader
  std::string name;
  Time begin{};
  std::optional<Time> end;  // nullopt: not ended
};

struct TransitionEntry {
  uint64_t number = 0;
  elastic::TransitionKind kind = elastic::TransitionKind::kSwap;
  Epoch from = 0;
  Epoch to = 0;
  Time begin{};
  std::optional<Time> entered;  // every member is in the new world; retirement follows
  std::optional<Time> end;
  bool committed = false;
  std::string summary;                             // the change that was made
  std::string result;                              // the reason for a failure; empty otherwise
  std::string progress;                            // the leader's last report
  elastic::Phase phase = elastic::Phase::kSteady;  // kSteady before the first phase
  std::vector<MemberId> members_before;
  std::vector<MemberId> members_after;
  std::vector<TransitionSpan> spans;  // by begin time
  struct Part {
    uint64_t bytes_in = 0;
    uint64_t bytes_out = 0;
    std::map<CommunicatorId, uint64_t> host_waits;  // of communicators that have passed their cut
    uint64_t pause_ns = 0;
  };
  std::map<MemberId, Part> parts;

  [[nodiscard]] TransitionSpan* Open(std::optional<MemberId> member, std::string_view name);
  // Returns the members that have an open span, with its name.
  [[nodiscard]] std::map<MemberId, std::string> WaitingFor() const;
};

std::string_view KindName(elastic::TransitionKind kind);

class TransitionLog {
 public:
  static constexpr size_t kKept = 16;

  void OnSent(Time now, MemberId member, const elastic::Message& message);
  void OnReceived(Time now, MemberId member, const elastic::Message& message);
  void OnNote(Time now, const elastic::Note& note, Epoch current);
  // Ends the running transition, because the leader is idle.
  void OnIdle(Time now);
  // Returns the transitions that have ended since the last call, in order.
  std::vector<TransitionEntry> TakeEnded() { return std::exchange(ended_, {}); }

  // Returns the running transition; nullptr: none.
  [[nodiscard]] const TransitionEntry* current() const;
  // Returns all kept transitions, oldest first.
  [[nodiscard]] const std::deque<TransitionEntry>& entries() const { return entries_; }
  // Returns the last transition to this epoch or, without an epoch, the last that was committed or
  // has ended; nullptr when there is none in the log.
  [[nodiscard]] const TransitionEntry* Find(std::optional<Epoch> epoch) const;

 private:
  void Begin(Time now, std::optional<MemberId> member, std::string_view name);
  void End(Time now, std::optional<MemberId> member, std::string_view name);
  void OnPosition(Time now, MemberId member, const elastic::Position& position);
  TransitionEntry* Running();
  void Close(Time now, TransitionEntry* entry);

  std::deque<TransitionEntry> entries_;
  std::vector<TransitionEntry> ended_;
};

}  // namespace rewire::control
