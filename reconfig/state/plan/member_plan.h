// The part of a plan that one member takes part in, checked, and a hash of the whole plan, by which
// the members confirm that all have the same. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/state/plan/plan.h"

namespace rewire::state {

struct MemberMove {
  Move move;
  // The first byte of the chunk among all that the target gets of this tensor from other members,
  // in the order of the plan: both ends name bytes by it. A multiple of 8. 0 if nothing moves.
  uint64_t begin = 0;
};

struct MemberPlan {
  std::vector<MemberMove> moves;  // in which the member is the source or the target
  uint64_t hash = 0;              // of the whole plan
};

// Fails as PlanMoves() does, and when the moves to the member are not its part exactly once.
absl::StatusOr<MemberPlan> PlanFor(MemberId member, const Sources& sources, const SeatedLayout& to);

}  // namespace rewire::state
