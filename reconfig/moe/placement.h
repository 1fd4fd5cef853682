// Which expert is in which slot of which device, and LAER-MoE's greedy way to place replicas
// (arXiv 2602.11686 and its public code). Pure, integers, ties to the lowest number; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/moe/topology.h"

namespace rewire::moe {

inline constexpr uint32_t kEmptySlot = UINT32_MAX;

struct Placement {
  uint32_t capacity = 0;        // slots of a device
  std::vector<uint32_t> slots;  // expert of device d's slot s at [d * capacity + s], or kEmptySlot
  friend bool operator==(const Placement&, const Placement&) = default;
};
// Every slot has an expert below `experts` or none, and every expert has a slot; names what is
// wrong.
[[nodiscard]] absl::Status Check(const Placement& placement, const Topology& topology,
                                 uint32_t experts);
// Orders the slots of each device by expert, empty ones last: what device computes what stays.
void SortSlots(Placement* placement);
// For ranks to compare.
[[nodiscard]] uint64_t Hash(const Placement& placement);

// Places the replicas of the experts in descending order of load per replica: each on the least
// loaded device with a free slot in those nodes that have fewest replicas of the expert, or, where
// these nodes are full, in any node. load: tokens of each expert, in all below 2^46. The replicas
// fit the slots.
[[nodiscard]] Placement PlaceGreedily(const Topology& topology, uint32_t capacity,
                                      std::span<const uint64_t> load,
                                      std::span<const uint32_t> replicas);

}  // namespace rewire::moe
