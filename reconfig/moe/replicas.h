// How many replicas each expert gets: the two ways of LAER-MoE's planner (arXiv 2602.11686 and its
// public code). Pure, integers, ties to the lowest expert; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reconfig/moe/topology.h"

namespace rewire::moe {

// The same for every expert; nothing where the slots cannot be divided so.
[[nodiscard]] std::optional<std::vector<uint32_t>> EvenReplicas(uint32_t slots, uint32_t experts);

// Starts with one replica in every node, or one at all where there are too few slots for that, and
// gives the next to the expert with the most load per replica: one more up to the number of nodes,
// from there on one more in every node. Up to nodes - 1 slots can stay empty.
// load: tokens of each expert, in all below 2^46. There are at least as many slots as experts.
[[nodiscard]] std::vector<uint32_t> QueueReplicas(std::span<const uint64_t> load, uint32_t slots,
                                                  uint32_t nodes);

}  // namespace rewire::moe
