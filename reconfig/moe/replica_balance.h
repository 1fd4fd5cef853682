// The micro-batch on top of a re-layout: what a placement made from the iterations before leaves
// uneven inside nodes is evened out under one budget of copied bytes. Where an expert has a replica
// in the node, tokens go there without its weights, also by way of others: a device passes tokens
// of one expert on and takes those of another. Only what cannot be had so costs a copy of an
// expert's weights, and the expert is split to fit. Like BalanceMoves (reconfig/moe/balance.h) it
// searches for the lowest busiest load, of all nodes, that the budget can reach.
// Pure, integers, ties to the lowest number; any thread.
#pragma once

#include <span>
#include <vector>

#include "reconfig/moe/node_tokens.h"

namespace rewire::moe {

// A plan for each of the nodes, which have passed Check(); at least one. No device computes more
// after it than the busiest of all did before, nor more than the busiest of its node did.
[[nodiscard]] std::vector<TransferPlan> BalanceReplicas(std::span<const NodeTokens> nodes,
                                                        const CopyBudget& budget);

}  // namespace rewire::moe
