// Rewire's placement of each node's replicas on its devices, chosen so that tokens stay on their
// device. Integer arithmetic, ties to the lowest number. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/demand.h"
#include "reconfig/moe/plan/lite_routing.h"
#include "reconfig/moe/plan/placement.h"
#include "reconfig/moe/plan/topology.h"

namespace rewire::moe {

struct NearPlacement {
  // Every replica is on the least loaded device.
  Placement level;
  // Replicas go to the device with most tokens for the expert, as long as no device computes more
  // than the busiest device does in `level`.
  Placement near;
};

// Places replicas with most load first in each node. copies: every expert has a replica, and no
// node has more replicas than slots.
[[nodiscard]] NearPlacement PlaceNear(const LiteRouting& tokens, const Counts& counts,
                                      const Topology& topology, uint32_t capacity,
                                      const NodeCopies& copies);

}  // namespace rewire::moe
