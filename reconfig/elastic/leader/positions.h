// The generations that the members reported: those in use, the pending swaps, and those that no
// member uses any more. Part of the leader; thread-compatible.
//
// The leader keeps only data that the members report, so a new leader learns all of it again.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

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
