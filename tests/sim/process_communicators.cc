// The generations of a modelled process's communicators: pledges, pending swaps and retirement. See
// process.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/elastic/protocol/messages.h"
#include "tests/sim/process.h"
#include "tests/sim/simulation.h"

namespace rewire::sim {

std::vector<elastic::Position> Process::Positions() const {
  std::vector<elastic::Position> positions;
  for (const auto& [id, c] : communicators_) {
    positions.push_back({id, c.open, c.generation, c.point_to_point, 0, c.pending, c.old});
  }
  return positions;
}

void Process::Moved() {
  Later(sim_->random().Between(microseconds(1), milliseconds(5)),
        [this](auto* out) { member_->OnPositions(sim_->now(), Positions(), out); });
}

bool Process::Needs(const elastic::GenerationId& generation) const {
  const auto it = communicators_.find(generation.communicator);
  if (it == communicators_.end()) return false;
  const Communicator& c = it->second;
  return (c.open && c.generation == generation.epoch) ||
         std::any_of(c.pending.begin(), c.pending.end(), [&](const elastic::PendingSwap& swap) {
           return swap.epoch == generation.epoch;
         });
}

bool Process::HoldsTooMany() const {
  return std::any_of(communicators_.begin(), communicators_.end(), [](const auto& each) {
    return !each.second.old.empty() || each.second.pending.size() > 2;
  });
}

std::optional<elastic::CutRefusal> Process::Pledge(Epoch epoch, std::vector<Cut> cuts) {
  std::optional<uint64_t> step;
  std::erase_if(cuts, [&](const Cut& cut) {
    if (cut.communicator != kUpdateBoundary) return false;
    step = cut.cut;
    return true;
  });
  const bool switching = switching_ && options_.planted_bug != elastic::PlantedBug::kUpdateNotHeld;
  if (step && (begun_ > *step || switching)) {
    return elastic::CutRefusal{kUpdateBoundary, "the update has begun"};
  }
  for (const Cut& cut : cuts) {
    const auto it = communicators_.find(cut.communicator);
    if (it == communicators_.end()) {
      sim_->ledger().Violation(absl::StrCat("member ", options_.member,
                                            " was asked for a cut of a communicator that it does "
                                            "not have"));
      return elastic::CutRefusal{cut.communicator, "it does not exist"};
    }
    const Communicator& c = it->second;
    for (const elastic::PendingSwap& swap : c.pending) {
      const elastic::CutOrder order = elastic::OrderOf(cut, swap);
      if (order == elastic::CutOrder::kCrosses)
        return elastic::CutRefusal{cut.communicator, "it crosses"};
      const bool begun = c.begun && swap == c.pending.front();
      if (order == elastic::CutOrder::kReplaces && begun)
        return elastic::CutRefusal{cut.communicator, "it has begun"};
    }
    if (c.passed && elastic::OrderOf(cut, *c.passed) != elastic::CutOrder::kFollows &&
        options_.planted_bug != elastic::PlantedBug::kPassedReplaced) {
      return elastic::CutRefusal{cut.communicator, "it has passed"};
    }
    const bool idle = cut.warm == cut.cut;
    if (idle && c.point_to_point) return elastic::CutRefusal{cut.communicator, "point-to-point"};
    if (c.issued + (idle ? 0 : 2) > cut.warm)
      return elastic::CutRefusal{cut.communicator, "too far"};
  }
  for (const Cut& cut : cuts) communicators_[cut.communicator].pledged = cut;
  if (step) swaps_[epoch] = *step;
  return std::nullopt;
}

void Process::SwapAtUpdate(Epoch epoch) {
  for (auto& [id, c] : communicators_) {
    const Epoch before = c.generation;
    while (!c.pending.empty() && c.pending.front().epoch <= epoch) {
      c.old.push_back(c.generation);
      c.generation = c.pending.front().epoch;
      c.passed = c.pending.front();
      c.issued = std::max(c.issued, c.passed->cut);
      c.pending.erase(c.pending.begin());
    }
    if (c.generation == before) continue;
    std::sort(c.old.begin(), c.old.end());
    c.begun = false;
    sim_->ledger().Warmed({c.generation, id});
    sim_->ledger().SwappedAtUpdate(era_, id, version_, c.generation);
  }
  Moved();
}

void Process::Decide(Epoch epoch, bool go) {
  for (auto& [id, c] : communicators_) {
    if (!c.pledged) continue;
    const Cut cut = *std::exchange(c.pledged, std::nullopt);
    if (!go) continue;
    if (c.issued > cut.warm) {
      sim_->ledger().Violation(absl::StrCat("member ", options_.member, " broke its pledge"));
    }
    if (options_.planted_bug == elastic::PlantedBug::kPendingOverwritten) c.pending.clear();
    while (!c.pending.empty() &&
           elastic::OrderOf(cut, c.pending.back()) == elastic::CutOrder::kReplaces) {
      sim_->ledger().Dropped({c.pending.back().epoch, id});
      c.old.push_back(c.pending.back().epoch);
      c.pending.pop_back();
    }
    std::sort(c.old.begin(), c.old.end());
    c.pending.push_back({epoch, cut.warm, cut.cut});
  }
  if (go) {
    decided_.insert(epoch);
  } else {
    swaps_.erase(epoch);
  }
  if (state_ == State::kBlocked) Continue();
  if (!go) return;
  Later(microseconds(10), [this, epoch](auto* out) {
    member_->OnPositions(sim_->now(), Positions(), out);
    member_->OnEntered(sim_->now(), epoch, 0, out);
  });
}

bool Process::PassCuts(const CommunicatorId& id) {
  Communicator& c = communicators_[id];
  for (;;) {
    const bool due = !c.pending.empty() &&
                     c.issued >= (c.begun ? c.pending.front().cut : c.pending.front().warm);
    const bool first = due && (!c.pledged || elastic::OrderOf(*c.pledged, c.pending.front()) ==
                                                 elastic::CutOrder::kFollows);
    if (c.pledged && c.issued >= c.pledged->warm && !first) return false;
    if (!due) return true;
    const Epoch epoch = c.pending.front().epoch;
    if (!c.begun) {
      c.begun = true;
      sim_->ledger().Warmed({epoch, id});
      continue;
    }
    c.begun = false;
    c.old.push_back(c.generation);
    std::sort(c.old.begin(), c.old.end());
    c.generation = epoch;
    c.passed = c.pending.front();
    c.pending.erase(c.pending.begin());
    Moved();
  }
}

void Process::Retire(const std::vector<elastic::GenerationId>& generations) {
  if (building_) {
    sim_->ledger().Violation(absl::StrCat("member ", options_.member,
                                          " was told to destroy generations while it builds"));
  }
  // Generations retire one after the other.
  retired_at_ = std::max(retired_at_, sim_->now()) +
                sim_->random().Between(milliseconds(1), milliseconds(10));
  Later(retired_at_ - sim_->now(), [this, generations](auto* out) {
    for (const elastic::GenerationId& generation : generations) {
      const auto it = communicators_.find(generation.communicator);
      if (it == communicators_.end() || std::erase(it->second.old, generation.epoch) == 0) continue;
      sim_->Destroyed(id(), era_, generation);
      const Communicator& c = it->second;
      const bool left = !c.group.empty() && groups_.at(c.group) != generation.communicator;
      if (left && c.old.empty()) communicators_.erase(it);
    }
    member_->OnPositions(sim_->now(), Positions(), out);
  });
}

}  // namespace rewire::sim
