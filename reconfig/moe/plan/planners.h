// Planners of a micro-batch without replicas: Rewire's BalanceMoves(), and two published planners
// to compare it with, FEPLB's greedy and LLEP's splitting. Each takes a batch that has passed
// Check(). Integer arithmetic, ties to the lowest number. Pure; thread-safe.
#pragma once

#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {

struct BalanceOptions {
  Budget budget;
  // Nothing moves while the busiest load is at most this percentage of the mean (LLEP's lambda).
  uint32_t gate_percent = 100;
  // A device keeps a surplus above the level of fewer tokens than this number. Each move has at
  // least this number of tokens.
  uint32_t least = 1;
  // [device * experts + expert]: 1 if the device already has the expert's weights. Moves to such
  // devices come first, and do not count as copies. Empty: no device has another's weights.
  std::vector<uint8_t> there;
};

// Moves whole experts where one fits and splits an expert's tokens where none fits. The goal is the
// lowest busiest load that the copy budget can reach. The plan takes dynamic experts and the budget
// from FEPLB, and splitting and the gate from LLEP. BalanceMoves() searches for a level instead of
// moving greedily: load above the level goes to the device with most room below, and an expert goes
// to a device at most once. The plan has the lowest level within the budget, to 1/1024 of the mean.
// The plan raises no device above the former busiest load.
[[nodiscard]] MovePlan BalanceMoves(const Batch& batch, const BalanceOptions& options);

// Returns the lowest busiest load, in tokens, that unlimited moves of dynamic experts' tokens could
// reach: the value of the linear program.
[[nodiscard]] uint64_t LowestPossible(const Batch& batch);

struct GreedyOptions {
  Budget budget;
  uint32_t least = 1;  // fewest tokens of an expert that is worth a copy; the paper's tau
};

// FEPLB's greedy (arXiv 2604.19654, after its public reviews): whole dynamic experts go from the
// busiest device to the least loaded device. The paper leaves the accept rule open. Here a move
// must leave both devices below the busiest device's former load.
[[nodiscard]] MovePlan GreedyMoves(const Batch& batch, const GreedyOptions& options);

struct SplitOptions {
  uint32_t gate_percent = 130;      // lambda: nothing moves while max / mean is below this
  uint32_t capacity_percent = 100;  // alpha: capacity of a device in percent of the mean
  uint32_t least = 1024;  // fewest tokens of a chunk, unless the chunk is the expert's rest
};

// LLEP (least-loaded expert parallelism, arXiv 2601.17111, and its authors' code). Experts are
// assigned in descending order of tokens. The owner keeps an expert's tokens while the owner's
// effective load has room, and the rest goes in chunks to the device with the least effective load.
// The effective load of a device is the sum of its assigned tokens and its pending native tokens,
// those of its own experts that come later in the order. There is no budget, and any expert may
// move. As in the paper, a rest that fits no device goes to the device with the least effective
// load. This load can then exceed the device's capacity.
[[nodiscard]] MovePlan SplitMoves(const Batch& batch, const SplitOptions& options);

}  // namespace rewire::moe
