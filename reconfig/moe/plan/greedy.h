// FEPLB's greedy for a micro-batch (arXiv 2604.19654, after its public reviews): whole dynamic
// experts go from the busiest device to the idlest. The paper leaves the accept rule open. Here a
// move must leave both devices below the busiest device's former load. Pure; thread-safe.
#pragma once

#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {

struct GreedyOptions {
  Budget budget;
  uint32_t least = 1;  // fewest tokens of an expert that is worth a copy; the paper's tau
};

// `batch` has passed Check().
[[nodiscard]] MovePlan GreedyMoves(const Batch& batch, const GreedyOptions& options);

}  // namespace rewire::moe
