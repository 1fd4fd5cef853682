// Places replicas of experts near their tokens: first chooses the number of replicas of each expert
// in each node, and then the devices in each node. LAER-MoE's planner (placement.h) uses only the
// loads. Integer arithmetic; ties go to the lowest number. Pure functions: thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/lite_routing.h"
#include "reconfig/moe/plan/placement.h"

namespace rewire::moe {

// The number of replicas of each expert in each node: [node * experts + expert].
using NodeCopies = std::vector<uint32_t>;

// Divides the replicas of each expert among the nodes with free slots, beginning with the experts
// that have the most tokens per replica. An expert's replicas go first to nodes without a replica
// of the expert, in descending order of the node's tokens for the expert. Each further replica goes
// to the node with the most such tokens per replica. The sum of `replicas` must not exceed the
// number of slots.
[[nodiscard]] NodeCopies DivideByDemand(const LiteRouting& tokens, const Topology& topology,
                                        uint32_t capacity, std::span<const uint32_t> replicas);

// Puts every expert once into every node. Gives each remaining slot of a node to the expert with
// the most tokens per replica in the node. Returns nullopt if a node has fewer slots than there are
// experts.
[[nodiscard]] std::optional<NodeCopies> CopiesByDemand(const LiteRouting& tokens,
                                                       const Topology& topology, uint32_t capacity);

struct NearPlacement {
  // Every replica was put on the device of its node that had the least load.
  Placement level;
  // Every replica was put on the device of its node with the most tokens for the expert, among the
  // devices that would not exceed the largest load in `level`. Without such a device, the replica
  // was put on the least loaded device.
  Placement near;
};

// Places each node's replicas on its devices, in descending order of the replicas' load. `copies`
// must contain a replica of every expert, and no more replicas in a node than the node has slots.
[[nodiscard]] NearPlacement PlaceNear(const LiteRouting& tokens, const Counts& counts,
                                      const Topology& topology, uint32_t capacity,
                                      const NodeCopies& copies);

}  // namespace rewire::moe
