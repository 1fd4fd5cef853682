// The members' communicators as the leader knows them; see registry.h. Owned by the leader's
// thread.
#include "reconfig/elastic/leader/registry.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace rewire::elastic {

std::string ShortName(const CommunicatorId& communicator) {
  return absl::StrFormat("%08x", static_cast<uint32_t>(communicator.high >> 32));
}

bool Registry::Created(Time now, MemberId member, const CommunicatorCreated& created) {
  std::string pinned;
  if (created.pinned) pinned = created.reason.empty() ? "no reason given" : created.reason;
  Seat& seat = communicators_[created.communicator][member];
  const bool fewer = created.held.size() < seat.held.size();
  seat = {created.ranks, created.held, std::move(pinned), now, created.group, created.creation};
  return fewer;
}

bool Registry::Pin(Time now, MemberId member, const CommunicatorPinned& pinned) {
  const auto it = communicators_.find(pinned.communicator);
  if (it == communicators_.end()) return false;
  const auto seat = it->second.find(member);
  if (seat == it->second.end()) return false;
  seat->second.pinned = pinned.reason;
  seat->second.pinned_since = now;
  return true;
}

std::vector<PinnedCommunicator> Registry::Pinned() const {
  std::vector<PinnedCommunicator> all;
  for (const auto& [id, seats] : communicators_) {
    for (const auto& [member, seat] : seats) {
      if (!seat.pinned.empty()) all.push_back({member, id, seat.pinned, seat.pinned_since});
    }
  }
  return all;
}

void Registry::Destroyed(MemberId member, const CommunicatorId& communicator) {
  const auto it = communicators_.find(communicator);
  if (it == communicators_.end()) return;
  it->second.erase(member);
  if (it->second.empty()) communicators_.erase(it);
}

void Registry::Forget(MemberId member) {
  for (auto& [id, seats] : communicators_) seats.erase(member);
  std::erase_if(communicators_, [](const auto& each) { return each.second.empty(); });
}

bool Registry::Has(MemberId member, const CommunicatorId& communicator) const {
  const auto it = communicators_.find(communicator);
  return it != communicators_.end() && it->second.contains(member);
}

bool Registry::HasAny(MemberId member) const {
  return std::any_of(communicators_.begin(), communicators_.end(),
                     [&](const auto& each) { return each.second.contains(member); });
}

std::set<std::string> Registry::Groups(MemberId member) const {
  std::set<std::string> names;
  for (const auto& [id, seats] : communicators_) {
    const auto seat = seats.find(member);
    if (seat != seats.end() && !seat->second.group.empty()) names.insert(seat->second.group);
  }
  return names;
}

std::string Registry::GroupOf(MemberId member, const CommunicatorId& communicator) const {
  const auto it = communicators_.find(communicator);
  if (it == communicators_.end()) return "";
  const auto seat = it->second.find(member);
  return seat == it->second.end() ? "" : seat->second.group;
}

std::optional<CommunicatorId> Registry::OfGroup(MemberId member, const std::string& name) const {
  std::optional<CommunicatorId> found;
  for (const auto& [id, seats] : communicators_) {
    if (name.empty() || GroupOf(member, id) != name) continue;
    if (found) return std::nullopt;
    found = id;
  }
  return found;
}

void Registry::Settle(MemberId member, const std::vector<MemberId>& members) {
  const auto slot = std::find(members.begin(), members.end(), member);
  if (slot == members.end()) return;
  for (auto& [id, seats] : communicators_) {
    const auto seat = seats.find(member);
    if (seat == seats.end() || !seat->second.group.empty()) continue;
    seat->second.held = {static_cast<uint32_t>(slot - members.begin())};
    seat->second.ranks = static_cast<uint32_t>(members.size());
  }
}

void Registry::MoveTo(const std::vector<MemberId>& members, const GroupIds& groups) {
  std::map<CommunicatorId, Seats> moved;
  for (const auto& [id, seats] : communicators_) {
    const bool grouped = std::any_of(seats.begin(), seats.end(),
                                     [](const auto& seat) { return !seat.second.group.empty(); });
    // A communicator that only members outside the new world had is gone with them.
    const bool stays = std::any_of(members.begin(), members.end(),
                                   [&seats = seats](MemberId m) { return seats.contains(m); });
    if (grouped || !stays) continue;
    for (size_t slot = 0; slot < members.size(); ++slot) {
      moved[id][members[slot]] = {
          static_cast<uint32_t>(members.size()), {static_cast<uint32_t>(slot)}, "", Time{}, "", 0};
    }
  }
  for (const auto& [name, of_name] : groups.groups()) {
    for (const MintedGroup& group : of_name) {
      const auto ranks = static_cast<uint32_t>(group.slots.size());
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        moved[IdentityOf(group)][members[group.slots[rank]]] = {ranks, {rank}, "", Time{}, name, 0};
      }
    }
  }
  communicators_ = std::move(moved);
}

}  // namespace rewire::elastic
