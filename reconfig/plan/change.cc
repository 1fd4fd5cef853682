// Which members hold and need what, at a planned change and after a loss; see plan.h. Pure.
#include <algorithm>

#include "reconfig/plan/plan.h"

namespace rewire {
namespace {

std::vector<Need> NeedsOf(std::span<const TensorShape> tensors, const World& to) {
  std::vector<Need> needs;
  const auto slots = static_cast<uint32_t>(to.members.size());
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    for (uint32_t slot = 0; slot < slots; ++slot) {
      needs.push_back({to.members[slot].member, t, PartOf(tensors[t], slots, slot)});
    }
  }
  return needs;
}

absl::StatusOr<Plan> Checked(std::span<const TensorShape> tensors,
                             const std::vector<Holding>& holdings, const std::vector<Need>& needs) {
  auto plan = AssignSources(tensors, holdings, needs);
  if (!plan.ok()) return plan;
  if (absl::Status status = CheckPlan(tensors, holdings, needs, *plan); !status.ok()) return status;
  return plan;
}

}  // namespace

absl::StatusOr<Plan> PlanChange(std::span<const TensorShape> tensors, const World& from,
                                const World& to) {
  std::vector<Holding> holdings;
  const auto slots = static_cast<uint32_t>(from.members.size());
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    for (uint32_t slot = 0; slot < slots; ++slot) {
      holdings.push_back(
          {from.members[slot].member, t, PartOf(tensors[t], slots, slot), Origin::kLive});
    }
  }
  return Checked(tensors, holdings, NeedsOf(tensors, to));
}

Box SnapshotPart(const TensorShape& tensor, uint32_t slots, uint32_t slot) {
  if (tensor.change == Change::kTransient) return {};
  if (tensor.change == Change::kVolatile && tensor.division == Division::kReplicated) {
    return {0, tensor.elements};
  }
  return ShardOf(tensor.elements, slots, slot);
}

absl::StatusOr<Plan> PlanRestore(std::span<const TensorShape> tensors, const World& from,
                                 const World& to, std::span<const MemberId> live) {
  std::vector<Holding> holdings;
  const auto slots = static_cast<uint32_t>(from.members.size());
  const auto survives = [&](uint32_t slot) {
    const std::optional<uint32_t> after = to.SlotOf(from.members[slot].member);
    return after && to.members[*after].incarnation == from.members[slot].incarnation;
  };
  std::vector<Need> needs = NeedsOf(tensors, to);
  std::erase_if(needs,
                [&](const Need& n) { return tensors[n.tensor].change == Change::kTransient; });
  // Where nothing exists once, constant tensors are not copied: who has the version in place has
  // all.
  const bool copied = std::any_of(tensors.begin(), tensors.end(), [](const TensorShape& t) {
    return t.change != Change::kTransient && t.division == Division::kSharded;
  });
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    for (uint32_t slot = 0; slot < slots; ++slot) {
      const MemberId member = from.members[slot].member;
      const Box piece = SnapshotPart(tensors[t], slots, slot);
      if (survives(slot)) {
        const bool in_place = tensors[t].change == Change::kConstant &&
                              std::find(live.begin(), live.end(), member) != live.end();
        if (in_place) {
          holdings.push_back({member, t, PartOf(tensors[t], slots, slot), Origin::kLive});
        } else if (copied || tensors[t].change != Change::kConstant) {
          holdings.push_back({member, t, piece, Origin::kOwnSnapshot});
        }
        continue;
      }
      const uint32_t next = (slot + 1) % slots;
      const bool kept_whole =
          tensors[t].change == Change::kVolatile && tensors[t].division == Division::kReplicated;
      const bool has_copy = copied || tensors[t].change != Change::kConstant;
      if (next != slot && survives(next) && !kept_whole && has_copy) {
        holdings.push_back({from.members[next].member, t, piece, Origin::kBuddySnapshot});
      }
    }
  }
  return Checked(tensors, holdings, needs);
}

}  // namespace rewire
