// The group communicators of a modelled process: a member of each group mints the id, and a change
// of members gives the communicator another group and another identity. See process.h.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/world/identity.h"
#include "tests/sim/process.h"
#include "tests/sim/simulation.h"

namespace rewire::sim {
namespace {

elastic::UniqueIdBytes MintedIn(Epoch epoch, const std::string& name, uint64_t lowest) {
  std::string id = absl::StrCat(epoch, ".", name, ".", lowest);
  id.resize(NCCL_UNIQUE_ID_BYTES, '.');
  return id;
}

}  // namespace

void Process::CreateGroup(const std::string& name) {
  const std::optional<uint32_t> slot = World{era_, world_}.SlotOf(id());
  const std::vector<uint32_t> group = Simulation::GroupOf(name, slot.value(), world_.size());
  // The ranks of a joiner's group are not all there yet, so the joiner's first id is its own.
  const elastic::UniqueIdBytes minted =
      joining_ ? MintedIn(0, name, id()) : MintedIn(era_, name, group.front());
  elastic::CommunicatorCreated created;
  created.communicator = IdentityOfUniqueId(minted.data());
  created.ranks = static_cast<uint32_t>(group.size());
  created.held = {
      static_cast<uint32_t>(std::find(group.begin(), group.end(), *slot) - group.begin())};
  created.group = name;
  created.creation = 1;
  groups_[name] = created.communicator;
  sim_->Named(created.communicator, name);
  Communicator& communicator = communicators_[created.communicator];
  communicator.group = name;
  communicator.generation = era_;
  Later(microseconds(1),
        [this, created](auto* out) { member_->OnCommunicatorCreated(sim_->now(), created, out); });
  Moved();
}

void Process::MintGroups(const elastic::MakePlan& plan) {
  const std::optional<uint32_t> slot = plan.to.SlotOf(id());
  if (!slot) return;
  for (const auto& [name, c] : plan.groups) {
    const std::vector<uint32_t> group = Simulation::GroupOf(name, *slot, plan.to.members.size());
    // A joiner mints only where there are joiners alone.
    const auto first = std::find_if(group.begin(), group.end(), [&](uint32_t each) {
      return plan.from.SlotOf(plan.to.members[each].member).has_value();
    });
    if (*(first == group.end() ? group.begin() : first) != *slot) continue;
    Later(sim_->random().Between(microseconds(10), milliseconds(2)),
          [=, this, epoch = plan.epoch, name = name, c = c](auto* out) {
            member_->OnMinted(sim_->now(), epoch, c, group, MintedIn(epoch, name, group.front()),
                              out);
          });
  }
}

void Process::MoveToGroups(Epoch epoch) {
  const std::optional<uint32_t> slot = World{epoch, world_}.SlotOf(id());
  for (auto& [name, c] : groups_) {
    const std::vector<uint32_t> group = Simulation::GroupOf(name, slot.value(), world_.size());
    const auto build =
        std::find_if(builds_.begin(), builds_.end(),
                     [&c = c](const elastic::CommunicatorBuild& b) { return b.communicator == c; });
    const elastic::UniqueIdBytes minted = MintedIn(epoch, name, group.front());
    if (build == builds_.end() || !build->grouped || build->unique_id != minted ||
        build->ranks != group.size() || group[build->held.at(0)] != *slot) {
      sim_->ledger().Violation(absl::StrCat("member ", id(), " has not built its ", name,
                                            " of epoch ", epoch, " for the slots ",
                                            absl::StrJoin(group, ",")));
      continue;
    }
    Communicator& before = communicators_.at(c);
    if (before.open && before.generation != epoch) before.old.push_back(before.generation);
    for (const elastic::PendingSwap& swap : before.pending) before.old.push_back(swap.epoch);
    std::sort(before.old.begin(), before.old.end());
    before = {name, 0, false, 0, false, {}, {}, false, {}, before.old};
    if (before.old.empty()) communicators_.erase(c);
    c = IdentityOfUniqueId(minted.data());
    sim_->Named(c, name);
    communicators_[c] = {name, 0, true, epoch, false, {}, {}, false, {}, {}};
  }
}

}  // namespace rewire::sim
