// Experts in the slots of devices, and LAER-MoE's greedy way to place replicas (arXiv 2602.11686
// and its public code). Integer arithmetic, ties to the lowest number. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/moe/plan/topology.h"

namespace rewire::moe {

inline constexpr uint32_t kEmptySlot = UINT32_MAX;

struct Placement {
  uint32_t capacity = 0;        // slots of one device
  std::vector<uint32_t> slots;  // device d's slot s is at [d * capacity + s]; kEmptySlot: none
  friend bool operator==(const Placement&, const Placement&) = default;
};
// Checks that every slot has an expert below `experts` or none, and that every expert has a slot.
// An error names the first violation.
[[nodiscard]] absl::Status Check(const Placement& placement, const Topology& topology,
                                 uint32_t experts);
// Sorts the slots of each device by expert, empty slots last. Devices keep their experts.
void SortSlots(Placement* placement);
// Returns a hash with which ranks compare placements.
[[nodiscard]] uint64_t Hash(const Placement& placement);

// Places the experts' replicas in descending order of load per replica. Each replica goes to the
// least loaded device with a free slot in the nodes with fewest replicas of the expert, or of any
// node if these are full. load: tokens of each expert, with a sum below 2^46. The replicas must fit
// the slots.
[[nodiscard]] Placement PlaceGreedily(const Topology& topology, uint32_t capacity,
                                      std::span<const uint64_t> load,
                                      std::span<const uint32_t> replicas);

}  // namespace rewire::moe
