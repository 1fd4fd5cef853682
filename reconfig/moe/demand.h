// How many replicas of which expert each node gets, so that tokens stay near: ours. LAER-MoE's
// planner (reconfig/moe/replicas.h, placement.h) looks at loads alone. Pure, integers, ties to the
// lowest number; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reconfig/moe/lite_routing.h"
#include "reconfig/moe/topology.h"

namespace rewire::moe {

// Replicas of each expert in each node: [node * experts + expert].
using NodeCopies = std::vector<uint32_t>;

// Divides replicas (of each expert, in all no more than the slots) among nodes, experts with most
// tokens per replica first: each to the node with room that has most tokens for the expert among
// those without one of it, and then by tokens per replica.
[[nodiscard]] NodeCopies DivideByDemand(const LiteRouting& tokens, const Topology& topology,
                                        uint32_t capacity, std::span<const uint32_t> replicas);

// Every expert once in every node, and what is left of a node's slots by the node's tokens per
// replica. Nothing where a node has fewer slots than there are experts.
[[nodiscard]] std::optional<NodeCopies> CopiesByDemand(const LiteRouting& tokens,
                                                       const Topology& topology, uint32_t capacity);

}  // namespace rewire::moe
