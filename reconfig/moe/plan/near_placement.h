// Rewire's placement of replicas, chosen so that tokens stay near: first how many replicas of each
// expert each node gets, and then the devices of each node. LAER-MoE's planner (placement.h) uses
// loads alone. Integer arithmetic, ties to the lowest number. Pure functions: thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/lite_routing.h"
#include "reconfig/moe/plan/placement.h"

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

struct NearPlacement {
  // Every replica is on the least loaded device.
  Placement level;
  // Replicas go to the device with most tokens for the expert, as long as no device computes more
  // than the busiest device does in `level`.
  Placement near;
};

// Places each node's replicas on its devices, those with most load first. copies: every expert has
// a replica, and no node has more replicas than slots.
[[nodiscard]] NearPlacement PlaceNear(const LiteRouting& tokens, const Counts& counts,
                                      const Topology& topology, uint32_t capacity,
                                      const NodeCopies& copies);

}  // namespace rewire::moe
