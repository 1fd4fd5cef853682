// Rewire's plan for a micro-batch: moves whole experts where one fits and splits an expert's tokens
// where none fits. The goal is the lowest busiest load that the copy budget can reach. The plan
// takes dynamic experts and the budget from FEPLB, and splitting and the gate from LLEP.
// BalanceMoves() searches for a level instead of moving greedily: load above the level goes to
// devices with most room below, one copy per pair. The lowest level within the budget wins.
// Pure; thread-safe.
#pragma once

#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {

struct BalanceOptions {
  Budget budget;
  // Nothing moves while the busiest load is at most this percentage of the mean (LLEP's lambda).
  uint32_t gate_percent = 100;
  // Fewest tokens that are worth a copy, and that must be above the level.
  uint32_t least = 1;
  // [device * experts + expert]: 1 if the device already has the expert's weights. Moves to such
  // devices come first and need no copy of weights. Empty: no device has another's weights.
  std::vector<uint8_t> there;
};

// The plan raises no device above the former busiest load. `batch` has passed Check().
[[nodiscard]] MovePlan BalanceMoves(const Batch& batch, const BalanceOptions& options);

// Returns the lowest busiest load, in tokens, that unlimited moves of dynamic experts' tokens could
// reach: the value of the linear program.
[[nodiscard]] uint64_t LowestPossible(const Batch& batch);

}  // namespace rewire::moe
