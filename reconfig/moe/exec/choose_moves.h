// Chooses the moves of a forward round that are worth their copies: those that shorten the
// predicted round (Makespan) with the arrival of their bytes. Integer arithmetic, ties to the
// lowest number. The work is bounded by a count of evaluations, not by time, so every process of a
// node chooses alike. Pure; thread-safe.
#pragma once

#include <vector>

#include "reconfig/moe/exec/makespan.h"
#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/exec/stow.h"
#include "reconfig/moe/plan/planners.h"

namespace rewire::moe {

// Weights that need not be copied.
struct Holdings {
  std::vector<std::vector<Slot>> slots;  // the slots of each device
  bool stay = false;  // weights sent for a forward round are still there in the backward round
};

// Returns the moves of BalanceMoves() that fit: fewer if slow copies would lengthen the round, and
// more that go to devices with the weights. Returns no moves if every copy is too slow.
[[nodiscard]] std::vector<Stowed> ChooseMoves(const Batch& batch, const BalanceOptions& options,
                                              const Shape& shape, const Speeds& speeds,
                                              const Holdings& holdings);

}  // namespace rewire::moe
