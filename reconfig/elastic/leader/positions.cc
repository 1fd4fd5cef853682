// The members' generations as the leader knows them; see positions.h. Owned by the leader's thread.
#include "reconfig/elastic/leader/positions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rewire::elastic {
namespace {

std::string Why(const Position& position, const PendingSwap& swap) {
  if (swap.warm == swap.cut) return "idle: it switches at its next operation";
  if (position.point_to_point) {
    return absl::StrCat(
        "point-to-point operations have no common index: it switches at collective operation ",
        swap.cut, " or at an update boundary");
  }
  return absl::StrCat("it switches at operation ", swap.cut);
}

bool Needs(const Position& position, Epoch epoch) {
  return (position.open && position.in_use == epoch) ||
         std::any_of(position.pending.begin(), position.pending.end(),
                     [&](const PendingSwap& swap) { return swap.epoch == epoch; });
}

}  // namespace

bool Positions::Report(MemberId member, const Position& position) {
  std::erase_if(given_, [&](const auto& given) {
    return given.first == member && given.second.communicator == position.communicator &&
           std::find(position.old.begin(), position.old.end(), given.second.epoch) ==
               position.old.end();
  });
  OfMembers& members = positions_[position.communicator];
  const auto before = members.find(member);
  const bool switched = before != members.end() && before->second.open && position.open &&
                        before->second.in_use != position.in_use;
  if (position.open || !position.pending.empty() || !position.old.empty()) {
    members[member] = position;
  } else {
    members.erase(member);
  }
  if (members.empty()) positions_.erase(position.communicator);
  return switched;
}

void Positions::Forget(MemberId member) {
  for (auto& [id, members] : positions_) members.erase(member);
  std::erase_if(positions_, [](const auto& each) { return each.second.empty(); });
  std::erase_if(given_, [&](const auto& given) { return given.first == member; });
}

void Positions::KeepOnly(const std::vector<MemberId>& members) {
  std::set<MemberId> gone;
  for (const auto& [id, of_members] : positions_) {
    for (const auto& [member, position] : of_members) gone.insert(member);
  }
  for (MemberId m : members) gone.erase(m);
  for (MemberId m : gone) Forget(m);
}

bool Positions::CarriesPointToPoint(const CommunicatorId& communicator) const {
  const auto it = positions_.find(communicator);
  return it != positions_.end() &&
         std::any_of(it->second.begin(), it->second.end(),
                     [](const auto& each) { return each.second.point_to_point; });
}

std::vector<PendingSwap> Positions::PendingOf(const CommunicatorId& communicator) const {
  std::map<Epoch, PendingSwap> swaps;
  if (const auto it = positions_.find(communicator); it != positions_.end()) {
    for (const auto& [member, position] : it->second) {
      for (const PendingSwap& swap : position.pending) swaps[swap.epoch] = swap;
    }
  }
  std::vector<PendingSwap> pending;
  for (const auto& [epoch, swap] : swaps) pending.push_back(swap);
  return pending;
}

std::vector<PendingCut> Positions::Pending() const {
  std::vector<PendingCut> all;
  for (const auto& [id, members] : positions_) {
    for (const auto& [member, position] : members) {
      if (position.pending.empty()) continue;
      const PendingSwap& last = position.pending.back();
      all.push_back({member, id, last, Why(position, last)});
    }
  }
  return all;
}

bool Positions::HasOldBefore(MemberId member, Epoch epoch) const {
  return std::any_of(positions_.begin(), positions_.end(), [&](const auto& each) {
    const auto position = each.second.find(member);
    return position != each.second.end() && !position->second.old.empty() &&
           position->second.old.front() < epoch;
  });
}

void Positions::Begun(const std::vector<GenerationId>& generations) {
  begun_.insert(generations.begin(), generations.end());
}

std::set<GenerationId> Positions::Old(const std::vector<MemberId>& world, bool all) const {
  const auto in_world = [&](MemberId m) {
    return std::find(world.begin(), world.end(), m) != world.end();
  };
  std::set<GenerationId> old;
  for (const auto& [id, members] : positions_) {
    for (const auto& [holder, position] : members) {
      if (!in_world(holder)) continue;
      for (const Epoch epoch : position.old) {
        const bool needed = std::any_of(members.begin(), members.end(), [&](const auto& each) {
          return in_world(each.first) && Needs(each.second, epoch);
        });
        if (all || !needed) old.insert({epoch, id});
      }
    }
  }
  return old;
}

std::map<MemberId, std::vector<GenerationId>> Positions::TakeRetired(
    const std::vector<MemberId>& world) {
  const std::set<GenerationId> held = Old(world, true);
  const auto gone = [&](const GenerationId& generation) { return !held.contains(generation); };
  std::erase_if(batch_, gone);
  std::erase_if(begun_, gone);
  if (batch_.empty()) batch_ = begun_.empty() ? Old(world, false) : begun_;
  std::map<MemberId, std::vector<GenerationId>> of_members;
  for (const GenerationId& generation : batch_) {
    for (const auto& [member, position] : positions_.at(generation.communicator)) {
      const bool has = std::find(position.old.begin(), position.old.end(), generation.epoch) !=
                       position.old.end();
      if (has && given_.emplace(member, generation).second) {
        of_members[member].push_back(generation);
      }
    }
  }
  return of_members;
}

}  // namespace rewire::elastic
