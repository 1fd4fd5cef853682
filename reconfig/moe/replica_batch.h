// A node whose experts have replicas, for planners that know none (FEPLB's greedy, LLEP's
// splitting, BalanceMoves): every replica is an expert of its own. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reconfig/moe/batch.h"
#include "reconfig/moe/node_tokens.h"

namespace rewire::moe {

struct ReplicaBatch {
  Batch batch;
  std::vector<uint32_t> expert;  // of the node, that each of the batch's is a replica of
};
// Dynamic are, of every device, the so many experts that had most tokens, the lowest of equals.
// history: tokens of each expert in micro-batches before.
[[nodiscard]] ReplicaBatch ReplicasAsExperts(const NodeTokens& node,
                                             std::span<const uint64_t> history, uint32_t dynamic);
// plan: for the batch.
[[nodiscard]] TransferPlan ToTransfers(const ReplicaBatch& replicas, const MovePlan& plan);

}  // namespace rewire::moe
