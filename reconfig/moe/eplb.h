// EPLB (deepseek-ai/EPLB, as its public code has it), a baseline: experts are given more replicas
// by their load so far, and replicas are packed onto devices so that these come out even. Between
// checkpoints, not between micro-batches. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rewire::moe {

struct EplbShape {
  uint32_t nodes = 1;
  uint32_t devices = 8;  // all together, a multiple of the nodes
  uint32_t slots = 17;   // of a device
  uint32_t groups = 1;   // of experts that belong on one node; used if a multiple of the nodes
};

// The expert in each slot, device after device. devices * slots is at least the number of experts.
// Hierarchical where the groups can be divided among the nodes, else global.
[[nodiscard]] std::vector<uint32_t> PackReplicas(std::span<const uint64_t> history,
                                                 const EplbShape& shape);
// Tokens that each device computes when each expert's are divided evenly among its replicas.
[[nodiscard]] std::vector<uint64_t> LoadsOfReplicas(std::span<const uint32_t> tokens,
                                                    std::span<const uint32_t> slots,
                                                    uint32_t devices);

}  // namespace rewire::moe
