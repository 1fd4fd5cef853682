// Which moves of a forward round are worth their copies: the straggler that they remove per byte
// and per microsecond is what is left of it once the arrival of the bytes is known. Pure, in
// integers, ties to the lowest number, and bounded by a count of evaluations and not by a time:
// every process of a node chooses alike. Thread-safe.
#pragma once

#include <vector>

#include "reconfig/moe/balance.h"
#include "reconfig/moe/exec/makespan.h"
#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/exec/stow.h"

namespace rewire::moe {

// The bytes that need not be copied.
struct Holdings {
  std::vector<std::vector<Slot>> slots;  // of each device
  bool stay = false;  // what comes for a forward round is there yet in the backward one
};

// The moves of BalanceMoves() that fit; fewer of them if copies take so long that the round ends
// earlier that way, and more that go to where their weights are. None in the end where every copy
// is too slow.
[[nodiscard]] std::vector<Stowed> ChooseMoves(const Batch& batch, const BalanceOptions& options,
                                              const Shape& shape, const Speeds& speeds,
                                              const Holdings& holdings);

}  // namespace rewire::moe
