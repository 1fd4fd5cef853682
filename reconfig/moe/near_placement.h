// Gives each node's replicas to its devices so that tokens stay on the device they are on: ours.
// Pure, integers, ties to the lowest number; any thread.
#pragma once

#include <cstdint>

#include "reconfig/moe/counts.h"
#include "reconfig/moe/demand.h"
#include "reconfig/moe/lite_routing.h"
#include "reconfig/moe/placement.h"
#include "reconfig/moe/topology.h"

namespace rewire::moe {

struct NearPlacement {
  Placement level;  // every replica went to the least loaded device of the node
  Placement near;   // to the device with most tokens for the expert, as far as no device computes
                    // more than the busiest does in the other
};

// In each node, replicas with most load first. copies: every expert is somewhere, and no node has
// more than its slots.
[[nodiscard]] NearPlacement PlaceNear(const LiteRouting& tokens, const Counts& counts,
                                      const Topology& topology, uint32_t capacity,
                                      const NodeCopies& copies);

}  // namespace rewire::moe
