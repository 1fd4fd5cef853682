// Chooses how many replicas of each expert each node gets so that tokens stay near (Rewire's
// planner). LAER-MoE's planner (reconfig/moe/plan/replicas.h, placement.h) uses loads alone.
// Integer arithmetic, ties to the lowest number. Pure functions: thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reconfig/moe/plan/lite_routing.h"
#include "reconfig/moe/plan/topology.h"

namespace rewire::moe {

// Replicas of each expert in each node: [node * experts + expert].
using NodeCopies = std::vector<uint32_t>;

// Divides the replicas of each expert among the nodes with room; experts with most tokens per
// replica come first. Nodes without a replica of the expert come before others, those with most
// tokens for the expert first. Further replicas follow the tokens per replica. The sum of replicas
// must not exceed the number of slots.
[[nodiscard]] NodeCopies DivideByDemand(const LiteRouting& tokens, const Topology& topology,
                                        uint32_t capacity, std::span<const uint32_t> replicas);

// Puts every expert once into every node and fills the remaining slots by the node's tokens per
// replica. Returns nullopt if a node has fewer slots than there are experts.
[[nodiscard]] std::optional<NodeCopies> CopiesByDemand(const LiteRouting& tokens,
                                                       const Topology& topology, uint32_t capacity);

}  // namespace rewire::moe
