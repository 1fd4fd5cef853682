// FEPLB's greedy for a micro-batch (arXiv 2604.19654, as its public reviews give it): whole dynamic
// experts go from the busiest device to the idlest. With the accept rule that the paper leaves
// open: a move must leave both below what the busiest had. Pure; any thread.
#pragma once

#include "reconfig/moe/batch.h"

namespace rewire::moe {

struct GreedyOptions {
  Budget budget;
  uint32_t least = 1;  // tokens of an expert that is worth a copy; the paper's tau
};

// `batch` has passed Check().
[[nodiscard]] MovePlan GreedyMoves(const Batch& batch, const GreedyOptions& options);

}  // namespace rewire::moe
