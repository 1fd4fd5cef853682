// Lists the holdings of all members at a planned change; see plan.h. Pure.
#include "reconfig/state/plan/needs.h"
#include "reconfig/state/plan/plan.h"

namespace rewire::state {

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
  return CheckedPlan(tensors, holdings, NeedsOf(tensors, to));
}

}  // namespace rewire::state
