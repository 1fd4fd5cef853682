// The moves of one forward round for a whole node, planned from what all its processes have posted.
// PlanNode() is what the balancer's thread computes for a round, and nothing else of that thread
// takes time before copies begin. Pure, in integers, ties to the lowest number: every process of
// the node derives the same plan. Thread-safe.
#pragma once

#include <span>
#include <vector>

#include "reconfig/moe/exec/choose_moves.h"
#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/exec/stow.h"

namespace rewire::moe {

// The message of a process when a round begins.
struct Posting {
  uint32_t copies = 0;           // its budget for this round
  Speeds speeds;                 // as it has measured
  std::vector<uint32_t> tokens;  // of each of its experts
  std::vector<uint8_t> dynamic;  // which of them may be moved
  std::vector<Slot> slots;       // its own
  bool stay = false;             // weights that it sent were still there in the last backward round
};

struct NodePlan {
  Speeds speeds;      // of the slowest process
  bool stay = false;  // weights are expected to be there in the backward round
  std::vector<Stowed> moves;
};

// postings: one of each rank, with Shape::experts counts each.
[[nodiscard]] NodePlan PlanNode(std::span<const Posting> postings, const Shape& shape);

}  // namespace rewire::moe
