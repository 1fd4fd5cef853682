// Plans the moves of one forward round for a whole node from all its processes' postings. The
// balancer's thread calls PlanNode() in every round, and no other work of that thread delays the
// copies. Integer arithmetic, ties to the lowest number. The work is bounded by a count of
// evaluations, not by time: every process of the node derives the same plan. Pure; thread-safe.
#pragma once

#include <span>
#include <vector>

#include "reconfig/moe/exec/makespan.h"
#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/exec/slots.h"
#include "reconfig/moe/plan/planners.h"

namespace rewire::moe {

// Weights that need not be copied.
struct Holdings {
  std::vector<std::vector<Slot>> slots;  // the slots of each device
  bool stay = false;  // weights sent for a forward round are still there in the backward round
};

// Chooses the moves of a forward round that are worth their copies: those that shorten the
// predicted round (Makespan) with the arrival of their bytes. Returns the moves of BalanceMoves()
// that fit: fewer if slow copies would lengthen the round, and more that go to devices with the
// weights. Returns no moves if every copy is too slow.
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
  Speeds speeds;      // speeds of the slowest process
  bool stay = false;  // weights are expected to stay until the backward round
  std::vector<PlacedMove> moves;
};

// postings: one of each rank, with Shape::experts counts each.
[[nodiscard]] NodePlan PlanNode(std::span<const Posting> postings, const Shape& shape);

}  // namespace rewire::moe
