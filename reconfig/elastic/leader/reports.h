// The communicators and generations that the members reported: Registry has the virtual
// communicators and their ranks, Positions the generations, the pending swaps and the generations
// that no member uses any more. Part of the leader; thread-compatible.
//
// The leader keeps only data that the members report, so a new leader learns all of it again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/clock.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

// A communicator that cannot be swapped because of one member.
struct PinnedCommunicator {
  MemberId member = 0;
  CommunicatorId communicator;
  std::string why;
  Time since;  // when the leader learned of it
};

class Registry {
 public:
  struct Seat {
    uint32_t ranks = 0;
    std::vector<uint32_t> held;  // ranks of the member, ascending
    std::string pinned;          // why the communicator cannot be swapped; empty: it can
    Time pinned_since;           // when the leader learned of `pinned`
  };
  // Seats of one communicator, by member.
  using Seats = std::map<MemberId, Seat>;

  // Returns whether the member held more ranks of it before: its program destroys one after the
  // other.
  bool Created(Time now, MemberId member, const CommunicatorCreated& created);
  // Returns false when the member has no such communicator.
  bool Pin(Time now, MemberId member, const CommunicatorPinned& pinned);
  void Destroyed(MemberId member, const CommunicatorId& communicator);
  void Forget(MemberId member);  // drops all communicators of the member

  [[nodiscard]] const std::map<CommunicatorId, Seats>& communicators() const {
    return communicators_;
  }
  [[nodiscard]] std::vector<PinnedCommunicator> Pinned() const;
  [[nodiscard]] bool HasAny(MemberId member) const;
  [[nodiscard]] bool Has(MemberId member, const CommunicatorId& communicator) const;

  // Checks the condition of a swap: every communicator that one of `members` has, has all its ranks
  // (among `members`), and none is pinned. kUnavailable: not yet (a communicator is being made);
  // kFailedPrecondition: never.
  [[nodiscard]] absl::Status ReadyForSwap(const std::vector<MemberId>& members) const;
  // Checks the condition of a change of members: every communicator spans exactly `members`, with
  // one rank each and in slot order, and none is pinned. Returns the same codes.
  [[nodiscard]] absl::Status ReadyForBoundary(const std::vector<MemberId>& members) const;
  // Checks the same among `survivors` of `members`: the condition of a loss transition.
  [[nodiscard]] absl::Status ReadyForLoss(const std::vector<MemberId>& members,
                                          const std::vector<MemberId>& survivors) const;
  // Checks that a joiner has reported the communicators of `member`, with the joiner's place in
  // `target`, and no other communicator.
  [[nodiscard]] absl::Status JoinerReady(MemberId joiner, MemberId member,
                                         const std::vector<MemberId>& target) const;

  // Does MoveTo for one member, whose reports were made before it learned of the commit.
  void Settle(MemberId member, const std::vector<MemberId>& members);
  // After a commit: every communicator now spans `members`; no other member has a communicator.
  void MoveTo(const std::vector<MemberId>& members);

 private:
  std::map<CommunicatorId, Seats> communicators_;
};

// Returns a short name, for example "1a2b3c4d", that distinguishes communicators in messages.
std::string ShortName(const CommunicatorId& communicator);

// A communicator of one member that has not passed a decided swap.
struct PendingCut {
  MemberId member = 0;
  CommunicatorId communicator;
  PendingSwap swap;  // the member's last pending swap
  std::string why;   // "idle: it switches at its next operation"
};

class Positions {
 public:
  // Returns true if the member was on another generation of this communicator before.
  bool Report(MemberId member, const Position& position);
  void Forget(MemberId member);  // drops all reports of the member
  void KeepOnly(const std::vector<MemberId>& members);

  // Returns whether any member reported point-to-point operations on the communicator.
  [[nodiscard]] bool CarriesPointToPoint(const CommunicatorId& communicator) const;
  // Returns the pending swaps in the order of their cuts, each once.
  [[nodiscard]] std::vector<PendingSwap> PendingOf(const CommunicatorId& communicator) const;
  [[nodiscard]] std::vector<PendingCut> Pending() const;
  // Returns whether the member must still destroy generations that were out of use before `epoch`.
  [[nodiscard]] bool HasOldBefore(MemberId member, Epoch epoch) const;

  // A member that has connected was told to destroy these generations. The previous leader may have
  // told the member, and the other members may not have heard of it.
  void Begun(const std::vector<GenerationId>& generations);
  // Returns the generations that each member must destroy now, in the same order on all members: no
  // member of the world uses or will use them. One batch at a time: the next batch begins when no
  // member holds any generation of the previous batch. A member gets each generation once per
  // connection.
  [[nodiscard]] std::map<MemberId, std::vector<GenerationId>> TakeRetired(
      const std::vector<MemberId>& world);

 private:
  using OfMembers = std::map<MemberId, Position>;

  // Returns the generations that some member of the world holds out of use. all: includes
  // generations that another member needs.
  [[nodiscard]] std::set<GenerationId> Old(const std::vector<MemberId>& world, bool all) const;

  std::map<CommunicatorId, OfMembers> positions_;
  std::set<GenerationId> begun_;
  std::set<GenerationId> batch_;
  std::set<std::pair<MemberId, GenerationId>> given_;
};

}  // namespace rewire::elastic
