// EPLB (deepseek-ai/EPLB, after its public code), a baseline: gives experts more replicas by their
// past load and packs replicas evenly onto devices. EPLB acts between checkpoints, not between
// micro-batches. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rewire::moe {

struct EplbShape {
  uint32_t nodes = 1;
  uint32_t devices = 8;  // all nodes together, a multiple of `nodes`
  uint32_t slots = 17;   // slots of one device
  uint32_t groups = 1;   // groups of experts that share a node; used if a multiple of `nodes`
};

// Returns the expert in each slot, device after device. devices * slots is at least the number of
// experts. Hierarchical if the groups can be divided among the nodes, else global.
[[nodiscard]] std::vector<uint32_t> PackReplicas(std::span<const uint64_t> history,
                                                 const EplbShape& shape);
// Returns each device's tokens if those of each expert are divided evenly among its replicas.
[[nodiscard]] std::vector<uint64_t> LoadsOfReplicas(std::span<const uint32_t> tokens,
                                                    std::span<const uint32_t> slots,
                                                    uint32_t devices);

}  // namespace rewire::moe
