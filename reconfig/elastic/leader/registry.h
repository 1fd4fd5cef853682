// The virtual communicators that the members reported. Part of the leader; thread-compatible.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

class Registry {
 public:
  struct Seat {
    uint32_t rank = 0;
    uint32_t ranks = 0;
    std::string pinned;    // why the communicator cannot be swapped; empty: it can
    bool several = false;  // the member's process drives several of its ranks
  };
  // Seats of one communicator, by member.
  using Seats = std::map<MemberId, Seat>;

  void Created(MemberId member, const CommunicatorCreated& created);
  void Destroyed(MemberId member, const CommunicatorId& communicator);
  void Forget(MemberId member);  // drops all communicators of the member
  void Clear() { communicators_.clear(); }

  [[nodiscard]] const std::map<CommunicatorId, Seats>& communicators() const {
    return communicators_;
  }
  [[nodiscard]] bool HasAny(MemberId member) const;
  [[nodiscard]] bool Has(MemberId member, const CommunicatorId& communicator) const;

  // Checks the condition of a swap: every communicator that one of `members` has, has all its ranks
  // (among `members`), and none is pinned. kUnavailable: not yet (a communicator is being made);
  // kFailedPrecondition: never.
  [[nodiscard]] absl::Status ReadyForSwap(const std::vector<MemberId>& members) const;
  // Checks the condition of a change of members: every communicator spans exactly `members`, in
  // slot order, and none is pinned. Returns the same codes.
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

}  // namespace rewire::elastic
