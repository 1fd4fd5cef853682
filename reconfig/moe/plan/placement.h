// Experts in the slots of devices: a topology, a placement, and LAER-MoE's way to choose one (arXiv
// 2602.11686 and its public code). That way first chooses how many replicas each expert gets, and
// then places the replicas greedily. Integer arithmetic, ties to the lowest number. The functions
// are pure and thread-safe; values are thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace rewire::moe {

// Devices and their nodes. A node's devices are consecutive.
struct Topology {
  uint32_t nodes = 1;
  uint32_t per_node = 8;  // devices of one node

  [[nodiscard]] uint32_t devices() const { return nodes * per_node; }
  friend bool operator==(const Topology&, const Topology&) = default;
};

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

// Returns the same number for every expert, or nullopt if the experts do not divide the slots.
[[nodiscard]] std::optional<std::vector<uint32_t>> EvenReplicas(uint32_t slots, uint32_t experts);

// Starts with one replica in every node, or one replica in total if there are too few slots. Each
// next replica goes to the expert with the most load per replica. An expert gets one more replica
// up to the number of nodes, and then one more in every node. Up to nodes - 1 slots can stay empty.
// load: tokens of each expert, with a sum below 2^46. There are at least as many slots as experts.
[[nodiscard]] std::vector<uint32_t> QueueReplicas(std::span<const uint64_t> load, uint32_t slots,
                                                  uint32_t nodes);

// Places the experts' replicas in descending order of load per replica. Each replica goes to the
// least loaded device with a free slot in the nodes with fewest replicas of the expert, or of any
// node if these are full. load: tokens of each expert, with a sum below 2^46. The replicas must fit
// the slots.
[[nodiscard]] Placement PlaceGreedily(const Topology& topology, uint32_t capacity,
                                      std::span<const uint64_t> load,
                                      std::span<const uint32_t> replicas);

}  // namespace rewire::moe
