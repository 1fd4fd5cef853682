// Balances a micro-batch on top of a re-layout: evens out the rest of the imbalance inside nodes
// under one budget of copied bytes. If an expert has a replica in the node, tokens go to the
// replica without a copy of weights. Tokens can also move by way of other devices: a device passes
// tokens of one expert on and takes tokens of another expert. Only the remaining imbalance costs
// copies of an expert's weights, and the expert is split to fit. Like BalanceMoves
// (reconfig/moe/plan/planners.h), BalanceReplicas() searches for the lowest busiest load of all
// nodes that the budget can reach. Integer arithmetic, ties to the lowest number. Pure;
// thread-safe.
#pragma once

#include <span>
#include <vector>

#include "reconfig/moe/plan/node_tokens.h"

namespace rewire::moe {

// Returns a plan for each node; there is at least one, and each has passed Check(). With the plans
// no device exceeds the former busiest device of all nodes, or of its own node.
[[nodiscard]] std::vector<TransferPlan> BalanceReplicas(std::span<const NodeTokens> nodes,
                                                        const CopyBudget& budget);

}  // namespace rewire::moe
