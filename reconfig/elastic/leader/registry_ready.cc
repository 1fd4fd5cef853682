// Whether the members' communicators can follow a transition; see registry.h. Owned by the leader's
// thread.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/elastic/leader/registry.h"

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

// Returns whether the member has this rank alone of a communicator of `size` ranks.
bool HasRank(const Registry::Seat& seat, size_t rank, size_t size) {
  return seat.ranks == size && seat.held.size() == 1 && seat.held.front() == rank;
}

absl::Status NotYet(const CommunicatorId& id, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("communicator ", ShortName(id), " ", why));
}

}  // namespace

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
      if (seat == seats.end() || !seat->second.group.empty()) continue;
      ++present;
      if (absl::Status status = CheckOnlySeat(id, m, seat->second); !status.ok()) return status;
      if (!HasRank(seat->second, slot, members.size())) {
        return Never(
            id, absl::StrCat("does not span the whole world in its order: member ", m, " in slot ",
                             slot, " of ", members.size(), " has rank ",
                             absl::StrJoin(seat->second.held, ", "), " of ", seat->second.ranks,
                             " (make it with an id of rewireGroupId())"));
      }
    }
    if (present > 0 && present < survivors.size()) {
      not_yet = NotYet(id, "has not been created on all its ranks");
    }
  }
  if (absl::Status groups = GroupsReady(survivors); !groups.ok()) return groups;
  return not_yet;
}

absl::Status Registry::GroupsReady(const std::vector<MemberId>& survivors) const {
  std::map<std::string, std::vector<const Seat*>> names;
  for (const auto& [id, seats] : communicators_) {
    for (MemberId m : survivors) {
      const auto seat = seats.find(m);
      if (seat == seats.end() || seat->second.group.empty()) continue;
      if (absl::Status status = CheckOnlySeat(id, m, seat->second); !status.ok()) return status;
      names[seat->second.group].push_back(&seat->second);
    }
  }
  for (const auto& [name, seats] : names) {
    const auto not_yet = [&, name = name](const std::string& why) {
      return absl::UnavailableError(absl::StrCat("group communicator ", name, " ", why));
    };
    for (MemberId m : survivors) {
      if (OfGroup(m, name)) continue;
      const bool several = Groups(m).contains(name);
      return not_yet(absl::StrCat(
          several ? "exists several times on member " : "has not been created by member ", m));
    }
    // Members may be between the end of one communicator and the creation of the next.
    for (const Seat* seat : seats) {
      if (seat->creation != seats.front()->creation) {
        return not_yet("is being made again: not all members have the same one");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Registry::JoinerReady(MemberId joiner, MemberId member,
                                   const std::vector<MemberId>& target) const {
  const auto slot =
      static_cast<size_t>(std::find(target.begin(), target.end(), joiner) - target.begin());
  for (const std::string& name : Groups(member)) {
    if (!OfGroup(joiner, name)) {
      return absl::UnavailableError(absl::StrCat(
          "group communicator ", name, " has not been created once by the new member ", joiner));
    }
  }
  for (const std::string& name : Groups(joiner)) {
    if (!OfGroup(member, name)) {
      return absl::UnavailableError(absl::StrCat("group communicator ", name,
                                                 " has been created by the new member ", joiner,
                                                 ", but not by member ", member));
    }
  }
  for (const auto& [id, seats] : communicators_) {
    const auto seat = seats.find(joiner);
    if (!GroupOf(joiner, id).empty()) {
      if (absl::Status status = CheckOnlySeat(id, joiner, seat->second); !status.ok()) {
        return status;
      }
      continue;
    }
    if (!GroupOf(member, id).empty()) continue;
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
    if (!HasRank(seat->second, slot, target.size())) {
      return Never(id, absl::StrCat("has rank ", absl::StrJoin(seat->second.held, ", "), " of ",
                                    seat->second.ranks, " on the new member ", joiner, ", not ",
                                    slot, " of ", target.size()));
    }
  }
  return absl::OkStatus();
}

absl::Status Registry::JoinerInGroups(MemberId joiner, uint32_t slot,
                                      const GroupIds& groups) const {
  for (const auto& [name, of_name] : groups.groups()) {
    for (const MintedGroup& group : of_name) {
      const std::optional<uint32_t> place = PlaceIn(group, slot);
      if (!place) continue;
      const Seat& seat = communicators_.at(*OfGroup(joiner, name)).at(joiner);
      if (HasRank(seat, *place, group.slots.size())) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "group communicator ", name, ": the new member ", joiner, " has rank ",
          absl::StrJoin(seat.held, ", "), " of ", seat.ranks, ": must be rank ", *place, " of ",
          group.slots.size(), " (make it with the numbers that rewireGroupId() returns)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace rewire::elastic
