// Plans the moves of one forward round for a whole node from all its processes' postings. The
// balancer's thread calls PlanNode() in every round, and no other work of that thread delays the
// copies. Integer arithmetic, ties to the lowest number: every process of the node derives the same
// plan. Pure; thread-safe.
#pragma once

#include <span>
#include <vector>

#include "reconfig/moe/exec/choose_moves.h"
#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/exec/stow.h"

namespace rewire::moe {

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
  std::vector<Stowed> moves;
};

// postings: one of each rank, with Shape::experts counts each.
[[nodiscard]] NodePlan PlanNode(std::span<const Posting> postings, const Shape& shape);

}  // namespace rewire::moe
