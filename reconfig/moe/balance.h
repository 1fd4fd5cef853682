// Ours for a micro-batch: whole experts where one fits, tokens of a split one where none does, for
// the lowest busiest load that the budget of copies can reach. It takes FEPLB's means (dynamic
// experts, a budget) and LLEP's (splitting, the gate), and searches for the level instead of moving
// greedily: for a level, whatever is above it is handed to where most is below it, one copy for
// each pair; the lowest level that needs no more copies than there are is the plan.
// Pure; any thread.
#pragma once

#include "reconfig/moe/batch.h"

namespace rewire::moe {

struct BalanceOptions {
  Budget budget;
  // While the busiest device has no more than so many percent of the mean nothing is moved (LLEP's
  // lambda).
  uint32_t gate_percent = 100;
  // Tokens for which a copy is worth it: so much must be above the level.
  uint32_t least = 1;
  // [device * experts + expert]: 1 where that device has the weights already. Moves to there come
  // first, and are no copies. Empty: none has.
  std::vector<uint8_t> there;
};

// No device computes more after it than the busiest did before. `batch` has passed Check().
[[nodiscard]] MovePlan BalanceMoves(const Batch& batch, const BalanceOptions& options);

// The lowest busiest load that moving dynamic experts' tokens about without end could reach: the
// linear program's value, in tokens.
[[nodiscard]] uint64_t LowestPossible(const Batch& batch);

}  // namespace rewire::moe
