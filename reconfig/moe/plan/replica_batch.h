// Presents a node whose experts have replicas to planners without replicas (FEPLB's greedy, LLEP's
// splitting, BalanceMoves): every replica becomes an expert of its own. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reconfig/moe/plan/batch.h"
#include "reconfig/moe/plan/node_tokens.h"

namespace rewire::moe {

struct ReplicaBatch {
  Batch batch;
  std::vector<uint32_t> expert;  // the node's expert for each of the batch's experts
};
// On every device, the `dynamic` experts that had most tokens are dynamic; ties go to the lowest.
// history: tokens of each expert in earlier micro-batches.
[[nodiscard]] ReplicaBatch ReplicasAsExperts(const NodeTokens& node,
                                             std::span<const uint64_t> history, uint32_t dynamic);
// `plan` is a plan for the batch.
[[nodiscard]] TransferPlan ToTransfers(const ReplicaBatch& replicas, const MovePlan& plan);

}  // namespace rewire::moe
