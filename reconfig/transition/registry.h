// Which virtual communicators the members have, as they reported them. Part of the leader.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/transition/messages.h"

namespace rewire {

class Registry {
 public:
  struct Seat {
    uint32_t rank = 0;
    uint32_t ranks = 0;
    std::string pinned;    // why it cannot be swapped; empty: it can
    bool several = false;  // the member's process drives several ranks of it
  };
  // Seats of one communicator, by member.
  using Seats = std::map<MemberId, Seat>;

  void Created(MemberId member, const CommunicatorCreated& created);
  void Destroyed(MemberId member, const CommunicatorId& communicator);
  void Forget(MemberId member);  // all that it had
  void Clear() { communicators_.clear(); }

  [[nodiscard]] const std::map<CommunicatorId, Seats>& communicators() const {
    return communicators_;
  }
  [[nodiscard]] bool HasAny(MemberId member) const;
  [[nodiscard]] bool Has(MemberId member, const CommunicatorId& communicator) const;

  // Every communicator that one of `members` has, has all its ranks (among them) and none is
  // pinned: what a swap needs. kUnavailable: not yet (one is being made); kFailedPrecondition:
  // never.
  [[nodiscard]] absl::Status ReadyForSwap(const std::vector<MemberId>& members) const;
  // Every communicator spans exactly `members`, in slot order, and none is pinned: what a change of
  // members needs. Same codes.
  [[nodiscard]] absl::Status ReadyForBoundary(const std::vector<MemberId>& members) const;
  // The same among `survivors` of `members`: what a loss needs.
  [[nodiscard]] absl::Status ReadyForLoss(const std::vector<MemberId>& members,
                                          const std::vector<MemberId>& survivors) const;
  // A joiner has reported the communicators that `member` has, with its place in `target`, and no
  // other.
  [[nodiscard]] absl::Status JoinerReady(MemberId joiner, MemberId member,
                                         const std::vector<MemberId>& target) const;

  // The same of one member, whose reports were made before it learnt of the commit.
  void Settle(MemberId member, const std::vector<MemberId>& members);
  // After a commit: every communicator now spans `members`; nobody else has one.
  void MoveTo(const std::vector<MemberId>& members);

 private:
  std::map<CommunicatorId, Seats> communicators_;
};

// "1a2b3c4d" - enough to tell communicators apart in messages.
std::string ShortName(const CommunicatorId& communicator);

}  // namespace rewire
