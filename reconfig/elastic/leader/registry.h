// The virtual communicators that the members reported, with their ranks, and whether these can
// follow a transition. Part of the leader; thread-compatible.
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
#include "reconfig/elastic/leader/group_ids.h"
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
    std::string group;           // a group communicator's name; empty: none
    uint32_t creation = 0;       // see CommunicatorCreated
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
  // Returns the names of the member's group communicators.
  [[nodiscard]] std::set<std::string> Groups(MemberId member) const;
  // Returns the name of the member's communicator; empty: it has none, or does not have it.
  [[nodiscard]] std::string GroupOf(MemberId member, const CommunicatorId& communicator) const;
  // Returns the member's communicator of this name; nullopt: it has none, or several.
  [[nodiscard]] std::optional<CommunicatorId> OfGroup(MemberId member,
                                                      const std::string& name) const;

  // Checks the condition of a swap: every communicator that one of `members` has, has all its ranks
  // (among `members`), and none is pinned. kUnavailable: not yet (a communicator is being made);
  // kFailedPrecondition: never.
  [[nodiscard]] absl::Status ReadyForSwap(const std::vector<MemberId>& members) const;
  // Checks the condition of a change of members: every communicator spans exactly `members`, with
  // one rank each and in slot order, or is a group communicator that each member has once. None is
  // pinned. Returns the same codes.
  [[nodiscard]] absl::Status ReadyForBoundary(const std::vector<MemberId>& members) const;
  // Checks the same among `survivors` of `members`: the condition of a loss transition.
  [[nodiscard]] absl::Status ReadyForLoss(const std::vector<MemberId>& members,
                                          const std::vector<MemberId>& survivors) const;
  // Checks that a joiner has reported the communicators of `member`, with the joiner's place in
  // `target`, and no other communicator. Group communicators have the same names.
  [[nodiscard]] absl::Status JoinerReady(MemberId joiner, MemberId member,
                                         const std::vector<MemberId>& target) const;

  // Checks that a joiner has made its group communicators with its place in the groups of the
  // target world, where it has this slot.
  [[nodiscard]] absl::Status JoinerInGroups(MemberId joiner, uint32_t slot,
                                            const GroupIds& groups) const;

  // Does MoveTo for one member, whose reports were made before it learned of the commit. The member
  // reports its group communicators again once it has learned of it.
  void Settle(MemberId member, const std::vector<MemberId>& members);
  // After a commit: every communicator now spans `members`, or one of the groups; no other member
  // has a communicator.
  void MoveTo(const std::vector<MemberId>& members, const GroupIds& groups);

 private:
  // Checks that each of `survivors` has the group communicators of the others, each name once.
  [[nodiscard]] absl::Status GroupsReady(const std::vector<MemberId>& survivors) const;

  std::map<CommunicatorId, Seats> communicators_;
};

// Returns a short name, for example "1a2b3c4d", that distinguishes communicators in messages.
std::string ShortName(const CommunicatorId& communicator);

}  // namespace rewire::elastic
