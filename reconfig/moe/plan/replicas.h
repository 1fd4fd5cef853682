// Chooses how many replicas each expert gets, in LAER-MoE's two ways (arXiv 2602.11686 and its
// public code). Integer arithmetic, ties to the lowest expert. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reconfig/moe/plan/topology.h"

namespace rewire::moe {

// Returns the same number for every expert, or nullopt if the experts do not divide the slots.
[[nodiscard]] std::optional<std::vector<uint32_t>> EvenReplicas(uint32_t slots, uint32_t experts);

// Starts with one replica in every node, or one replica in total if there are too few slots. Each
// next replica goes to the expert with the most load per replica. An expert gets one more replica
// up to the number of nodes, and then one more in every node. Up to nodes - 1 slots can stay empty.
// load: tokens of each expert, with a sum below 2^46. There are at least as many slots as experts.
[[nodiscard]] std::vector<uint32_t> QueueReplicas(std::span<const uint64_t> load, uint32_t slots,
                                                  uint32_t nodes);

}  // namespace rewire::moe
