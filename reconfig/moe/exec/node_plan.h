// Plans the moves of one forward round for a whole node from the postings, one of each process. The
// balancer's thread calls PlanNode() in every round before the copies begin. Integer arithmetic,
// ties to the lowest number. The work is bounded by a count of evaluations, not by time, so that
// every process of the node derives the same plan. Pure; thread-safe.
#pragma once

#include <span>
#include <vector>

#include "reconfig/moe/exec/lent_slots.h"
#include "reconfig/moe/exec/makespan.h"
#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/plan/planners.h"

namespace rewire::moe {

// Weights that devices already have, which need no copy.
struct Holdings {
  std::vector<std::vector<Slot>> slots;  // the slots of each device
  bool stay = false;  // weights sent for a forward round are still there in the backward round
};

// Chooses the moves of a forward round that are worth their copies: those that shorten the
// predicted round (Makespan), which includes the arrival of their bytes. Returns the moves of
// BalanceMoves() that fit. If slow copies would lengthen the round, returns fewer of these moves,
// and more moves to devices that have the weights. Returns no moves if every copy is too slow.
[[nodiscard]] std::vector<PlacedMove> ChooseMoves(const Batch& batch, const BalanceOptions& options,
                                                  const Shape& shape, const Speeds& speeds,
                                                  const Holdings& holdings);

// A process's message at the beginning of a round.
struct Posting {
  uint32_t copies = 0;           // the process's copy budget for this round
  Speeds speeds;                 // as the process has measured
  std::vector<uint32_t> tokens;  // tokens of each own expert
  std::vector<uint8_t> dynamic;  // the own experts that may be moved
  std::vector<Slot> slots;       // the process's own slots
  bool stay = false;             // sent weights were still there in the last backward round
};

struct NodePlan {
  Speeds speeds;      // the slowest value of each speed over all processes
  bool stay = false;  // weights are expected to stay until the backward round
  std::vector<PlacedMove> moves;
};

// postings: one of each rank, with Shape::experts counts each.
[[nodiscard]] NodePlan PlanNode(std::span<const Posting> postings, const Shape& shape);

}  // namespace rewire::moe
