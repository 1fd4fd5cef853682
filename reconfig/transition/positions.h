// The generations of every communicator, as the members reported them: which swaps are pending, and
// which generations no member uses any more. Part of the leader.
//
// The leader keeps nothing here that the members do not report, so a leader that has just started
// learns all of it from their reports.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reconfig/transition/messages.h"

namespace rewire {

// One member's communicator that has not passed a decided swap.
struct PendingCut {
  MemberId member = 0;
  CommunicatorId communicator;
  PendingSwap swap;  // the last one
  std::string why;   // "idle: it switches at its next operation"
};

class Positions {
 public:
  // True: the member was on another generation of this communicator before.
  bool Report(MemberId member, const Position& position);
  void Forget(MemberId member);  // all that it reported
  void KeepOnly(const std::vector<MemberId>& members);

  // Of one communicator, over all members.
  [[nodiscard]] bool CarriesPointToPoint(const CommunicatorId& communicator) const;
  // In the order of their cuts, each once.
  [[nodiscard]] std::vector<PendingSwap> PendingOf(const CommunicatorId& communicator) const;
  [[nodiscard]] std::vector<PendingCut> Pending() const;
  // Whether the member still has generations to destroy that were out of use before `epoch`.
  [[nodiscard]] bool HasOldBefore(MemberId member, Epoch epoch) const;

  // A member that has connected was told to destroy these, perhaps by the leader before this one,
  // which the others may not have heard from.
  void Begun(const std::vector<GenerationId>& generations);
  // Generations that no member of the world uses or will use: what each member must destroy now, in
  // the same order on all. One batch at a time: the next one begins when nobody holds any of the
  // batch before. Each generation is given to a member once, unless the member reconnects.
  [[nodiscard]] std::map<MemberId, std::vector<GenerationId>> TakeRetired(
      const std::vector<MemberId>& world);

 private:
  using OfMembers = std::map<MemberId, Position>;

  // Those that some member of the world holds out of use; all: also such that another needs.
  [[nodiscard]] std::set<GenerationId> Old(const std::vector<MemberId>& world, bool all) const;

  std::map<CommunicatorId, OfMembers> positions_;
  std::set<GenerationId> begun_;
  std::set<GenerationId> batch_;
  std::set<std::pair<MemberId, GenerationId>> given_;
};

}  // namespace rewire
