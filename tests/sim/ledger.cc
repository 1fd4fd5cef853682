// The checks of ledger.h.
#include "tests/sim/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rewire::sim {

void Ledger::Wrote(const WorldRecord& record) {
  Log(1, record.revision ^ (record.world.epoch << 32));
  const Epoch epoch = record.world.epoch;
  if (record.revision <= revision_) Violation(absl::StrCat("revision ", record.revision, " again"));
  if (epoch < epoch_) Violation(absl::StrCat("epoch ", epoch, " written after ", epoch_));
  if (epoch > record.reserved_epoch) {
    Violation(absl::StrCat("epoch ", epoch, " was committed without having been reserved"));
  }
  revision_ = record.revision;
  epoch_ = std::max(epoch_, epoch);
  if (epoch == 0) return;
  const auto [it, first] = worlds_.emplace(epoch, record);
  if (!first && (it->second.world != record.world || it->second.secret != record.secret ||
                 it->second.cuts != record.cuts)) {
    Violation(absl::StrCat("two worlds were committed for epoch ", epoch));
  }
}

void Ledger::Issued(MemberId member, Epoch era, const CommunicatorId& communicator, uint64_t index,
                    Epoch generation) {
  Log(2, index ^ (generation << 32) ^ (uint64_t{member} << 48));
  const auto [it, first] = issued_.emplace(std::tuple(era, communicator, index), generation);
  if (!first && it->second != generation) {
    Violation(absl::StrCat("member ", member, " issued operation ", index, " on generation ",
                           generation, ", another member on ", it->second));
  }
}

void Ledger::SwappedAtUpdate(Epoch era, const CommunicatorId& communicator, uint64_t version,
                             Epoch generation) {
  const auto [known, first] = swapped_.try_emplace({era, communicator, generation}, version);
  if (first || known->second == version) return;
  Violation(absl::StrCat("generation ", generation, " of a communicator is taken before update ",
                         version, " and before update ", known->second));
}

void Ledger::Warmed(const elastic::GenerationId& generation) {
  warmed_.insert(generation);
  if (dropped_.contains(generation)) {
    Violation(absl::StrCat("the generation of epoch ", generation.epoch, " is used, but dropped"));
  }
}

void Ledger::Dropped(const elastic::GenerationId& generation) {
  dropped_.insert(generation);
  if (warmed_.contains(generation)) {
    Violation(absl::StrCat("the generation of epoch ", generation.epoch, " is dropped, but used"));
  }
}

void Ledger::Destroyed(MemberId member, Epoch era, const elastic::GenerationId& generation) {
  Log(8, generation.epoch ^ (uint64_t{member} << 48));
  auto& members = destroyed_[era];
  std::vector<elastic::GenerationId>& own = members[member];
  for (const auto& [other, theirs] : members) {
    if (other == member) continue;
    const auto at = std::find(theirs.begin(), theirs.end(), generation);
    if (at == theirs.end()) continue;
    // A generation that `other` destroyed later must not be one that this member destroyed earlier.
    for (auto later = at + 1; later != theirs.end(); ++later) {
      if (std::find(own.begin(), own.end(), *later) != own.end()) {
        Violation(absl::StrCat("members ", member, " and ", other,
                               " destroyed the generations of epochs ", generation.epoch, " and ",
                               later->epoch, " in different orders"));
      }
    }
  }
  own.push_back(generation);
}

bool Ledger::LossBetween(Epoch after, Epoch up_to) const {
  return std::any_of(kinds_.upper_bound(after), kinds_.upper_bound(up_to), [](const auto& each) {
    return each.second == elastic::TransitionKind::kLoss;
  });
}

void Ledger::Applied(MemberId member, uint64_t version, Epoch epoch) {
  Log(3, version ^ (epoch << 32) ^ (uint64_t{member} << 48));
  if (!applied_by_.emplace(version, epoch, member).second) {
    Violation(
        absl::StrCat("member ", member, " applied update ", version, " twice in epoch ", epoch));
  }
  if (version > 0 && !applied_.contains(version - 1)) {
    Violation(absl::StrCat("update ", version, " was applied, ", version - 1, " never was"));
  }
  applied_[version].insert(epoch);
  highest_version_ = std::max(highest_version_, version + 1);
  highest_in_[epoch] = std::max(highest_in_[epoch], version + 1);
  for (Epoch other : applied_[version]) {
    const Epoch low = std::min(other, epoch);
    const Epoch high = std::max(other, epoch);
    if (low == high || LossBetween(low, high)) continue;
    // A same-member swap changes the epoch while the program runs: members pass it at their own
    // time.
    bool only_swaps = true;
    for (auto it = kinds_.upper_bound(low); it != kinds_.end() && it->first <= high; ++it) {
      only_swaps = only_swaps && it->second == elastic::TransitionKind::kSwap;
    }
    if (!only_swaps) {
      Violation(absl::StrCat("update ", version, " was applied in the worlds of epochs ", low,
                             " and ", high));
    }
  }
}

void Ledger::Adopted(MemberId member, const WorldRecord& record, elastic::TransitionKind kind,
                     uint64_t version, bool in_world) {
  const Epoch epoch = record.world.epoch;
  Log(4, version ^ (epoch << 32) ^ (uint64_t{member} << 48));
  const auto world = worlds_.find(epoch);
  if (world == worlds_.end() || world->second.world != record.world ||
      world->second.secret != record.secret) {
    Violation(absl::StrCat("member ", member, " adopted a world of epoch ", epoch,
                           " that was never committed"));
  }
  kinds_[epoch] = kind;
  if (kind == elastic::TransitionKind::kSwap || !in_world) return;
  const auto [it, first] = adopted_version_.emplace(epoch, version);
  if (!first && it->second != version) {
    Violation(
        absl::StrCat("epoch ", epoch, " was entered with versions ", it->second, " and ", version));
  }
  // The highest version reached in an earlier world: a planned change loses nothing, a loss one
  // step or more.
  uint64_t reached = 0;
  for (const auto& [before, highest] : highest_in_) {
    if (before < epoch && !LossBetween(before, epoch - 1)) reached = std::max(reached, highest);
  }
  const uint64_t may_lose = kind == elastic::TransitionKind::kLoss ? may_lose_ : 0;
  if (version + may_lose < reached) {
    Violation(absl::StrCat("epoch ", epoch, " begins at version ", version, ", but ", reached,
                           " had been reached"));
  }
}

uint64_t Ledger::commits(elastic::TransitionKind kind) const {
  return static_cast<uint64_t>(std::count_if(
      kinds_.begin(), kinds_.end(), [&](const auto& each) { return each.second == kind; }));
}

}  // namespace rewire::sim
