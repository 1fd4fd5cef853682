// The needs of a world's members, and a plan that is checked against them. For change.cc and
// restore.cc only. Pure.
#pragma once

#include <vector>

#include "reconfig/state/plan/plan.h"

namespace rewire::state {

inline std::vector<Need> NeedsOf(std::span<const TensorShape> tensors, const World& to) {
  std::vector<Need> needs;
  const auto slots = static_cast<uint32_t>(to.members.size());
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    for (uint32_t slot = 0; slot < slots; ++slot) {
      needs.push_back({to.members[slot].member, t, PartOf(tensors[t], slots, slot)});
    }
  }
  return needs;
}

inline absl::StatusOr<Plan> CheckedPlan(std::span<const TensorShape> tensors,
                                        const std::vector<Holding>& holdings,
                                        const std::vector<Need>& needs) {
  auto plan = AssignSources(tensors, holdings, needs);
  if (!plan.ok()) return plan;
  if (absl::Status status = CheckPlan(tensors, holdings, needs, *plan); !status.ok()) return status;
  return plan;
}

}  // namespace rewire::state
