// The members' communicators and generations as the leader knows them; see reports.h. Owned by the
// leader's thread.
#include "reconfig/elastic/leader/reports.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace rewire::elastic {
namespace {

absl::Status Never(const CommunicatorId& id, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("communicator ", ShortName(id), " ", why));
}

// Returns OK, or why a member's communicator cannot be swapped.
absl::Status CheckSeat(const CommunicatorId& id, MemberId member, const Registry::Seat& seat) {
  if (seat.pinned.empty()) return absl::OkStatus();
  return Never(id, absl::StrCat("is pinned on member ", member, ": ", seat.pinned));
}

// Returns OK, or why a communicator cannot follow a change of members.
absl::Status CheckOnlySeat(const CommunicatorId& id, MemberId member, const Registry::Seat& seat) {
  if (seat.held.size() > 1) {
    return Never(id, absl::StrCat("has several ranks in member ", member,
                                  "'s process: it can be rebuilt, but only communicators with one "
                                  "rank in each process can follow a change of members"));
  }
  return CheckSeat(id, member, seat);
}

// Returns whether a communicator of `size` ranks has rank `slot` alone on the member of that slot.
bool IsWholeWorld(const Registry::Seat& seat, size_t slot, size_t size) {
  return seat.ranks == size && seat.held.size() == 1 && seat.held.front() == slot;
}

absl::Status NotYet(const CommunicatorId& id, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("communicator ", ShortName(id), " ", why));
}

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

// ---- registry -----------------------------------------------------------------------------------

std::string ShortName(const CommunicatorId& communicator) {
  return absl::StrFormat("%08x", static_cast<uint32_t>(communicator.high >> 32));
}

bool Registry::Created(Time now, MemberId member, const CommunicatorCreated& created) {
  std::string pinned;
  if (created.pinned) pinned = created.reason.empty() ? "no reason given" : created.reason;
  Seat& seat = communicators_[created.communicator][member];
  const bool fewer = created.held.size() < seat.held.size();
  seat = {created.ranks, created.held, std::move(pinned), now};
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

absl::Status Registry::ReadyForSwap(const std::vector<MemberId>& members) const {
  absl::Status not_yet;
  for (const auto& [id, seats] : communicators_) {
    uint32_t ranks = 0;
    size_t present = 0;
    for (MemberId m : members) {
      const auto seat = seats.find(m);
      if (seat == seats.end()) continue;
      present += seat->second.held.size();
      ranks = std::max(ranks, seat->second.ranks);
      if (absl::Status status = CheckSeat(id, m, seat->second); !status.ok()) return status;
    }
    if (present < ranks) {
      not_yet = NotYet(id, absl::StrCat("has been reported by ", present, " of its ", ranks,
                                        " ranks: the others have not created it, or have "
                                        "destroyed it already"));
    }
  }
  return not_yet;
}

absl::Status Registry::ReadyForBoundary(const std::vector<MemberId>& members) const {
  return ReadyForLoss(members, members);
}

absl::Status Registry::ReadyForLoss(const std::vector<MemberId>& members,
                                    const std::vector<MemberId>& survivors) const {
  absl::Status not_yet;
  for (const auto& [id, seats] : communicators_) {
    size_t present = 0;
    for (size_t slot = 0; slot < members.size(); ++slot) {
      const MemberId m = members[slot];
      if (std::find(survivors.begin(), survivors.end(), m) == survivors.end()) continue;
      const auto seat = seats.find(m);
      if (seat == seats.end()) continue;
      ++present;
      if (absl::Status status = CheckOnlySeat(id, m, seat->second); !status.ok()) return status;
      if (!IsWholeWorld(seat->second, slot, members.size())) {
        return Never(
            id, absl::StrCat("does not span the whole world in its order: member ", m, " in slot ",
                             slot, " of ", members.size(), " has rank ",
                             absl::StrJoin(seat->second.held, ", "), " of ", seat->second.ranks));
      }
    }
    if (present > 0 && present < survivors.size()) {
      not_yet = NotYet(id, "has not been created on all its ranks");
    }
  }
  return not_yet;
}

absl::Status Registry::JoinerReady(MemberId joiner, MemberId member,
                                   const std::vector<MemberId>& target) const {
  const auto slot =
      static_cast<size_t>(std::find(target.begin(), target.end(), joiner) - target.begin());
  for (const auto& [id, seats] : communicators_) {
    const auto seat = seats.find(joiner);
    if (!seats.contains(member)) {
      if (seat != seats.end()) {
        return NotYet(id, absl::StrCat("has been created by the new member ", joiner,
                                       ", but not by member ", member));
      }
      continue;
    }
    if (seat == seats.end()) {
      return NotYet(id, absl::StrCat("has not been created by the new member ", joiner));
    }
    if (absl::Status status = CheckOnlySeat(id, joiner, seat->second); !status.ok()) return status;
    if (!IsWholeWorld(seat->second, slot, target.size())) {
      return Never(id, absl::StrCat("has rank ", absl::StrJoin(seat->second.held, ", "), " of ",
                                    seat->second.ranks, " on the new member ", joiner, ", not ",
                                    slot, " of ", target.size()));
    }
  }
  return absl::OkStatus();
}

void Registry::Settle(MemberId member, const std::vector<MemberId>& members) {
  const auto slot = std::find(members.begin(), members.end(), member);
  if (slot == members.end()) return;
  for (auto& [id, seats] : communicators_) {
    const auto seat = seats.find(member);
    if (seat == seats.end()) continue;
    seat->second.held = {static_cast<uint32_t>(slot - members.begin())};
    seat->second.ranks = static_cast<uint32_t>(members.size());
  }
}

void Registry::MoveTo(const std::vector<MemberId>& members) {
  for (auto& [id, seats] : communicators_) {
    Seats moved;
    for (size_t slot = 0; slot < members.size(); ++slot) {
      moved[members[slot]] = {
          static_cast<uint32_t>(members.size()), {static_cast<uint32_t>(slot)}, "", Time{}};
    }
    seats = std::move(moved);
  }
}

// ---- positions ----------------------------------------------------------------------------------

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
