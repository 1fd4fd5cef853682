// The unique ids of one transition's group communicators, as the groups of the target world report
// them. Part of the leader. Pure values; thread-compatible.
//
// A group communicator has one name on all members. The leader knows no layout: a member of each
// group mints the id and says which slots the group has. The ids of a name are complete when every
// slot of the target world is in one group.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

// One group of the target world.
struct MintedGroup {
  UniqueIdBytes unique_id;
  std::vector<uint32_t> slots;  // ascending
};

// Returns the place of the slot in the group; nullopt: the group does not have the slot.
std::optional<uint32_t> PlaceIn(const MintedGroup& group, uint32_t slot);
// Returns the identity of the communicator that the group makes with its id.
CommunicatorId IdentityOf(const MintedGroup& group);

class GroupIds {
 public:
  // names: of the group communicators in a target world of `slots` members.
  void Expect(std::set<std::string> names, uint32_t slots);
  // Returns why the message contradicts the others; empty: its group was added.
  std::string Add(const std::string& name, const Minted& minted);
  // Returns which slots are in no group, for people; empty: the ids are complete.
  [[nodiscard]] std::string Missing() const;
  // The groups by name. Members build in this order.
  [[nodiscard]] const std::map<std::string, std::vector<MintedGroup>>& groups() const {
    return groups_;
  }

 private:
  uint32_t slots_ = 0;
  std::map<std::string, std::vector<MintedGroup>> groups_;
};

}  // namespace rewire::elastic
