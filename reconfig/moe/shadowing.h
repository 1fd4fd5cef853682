// FasterMoE's dynamic shadowing (PPoPP'22; the policy as its public code has it), a baseline: the
// weights of popular experts are broadcast, and every device computes its own tokens for them.
// Experts are taken by falling load while the model's latency falls. Its model knows one expert on
// each device; here the busiest device stands where the busiest expert does there. Pure; any
// thread.
#pragma once

#include "reconfig/moe/batch.h"

namespace rewire::moe {

// In picoseconds.
struct ShadowCost {
  uint64_t token = 155'000;       // to compute one, one of three passes
  uint64_t feature = 27'000;      // to send one, one of four times
  uint64_t expert = 168'000'000;  // to send an expert's weights to all
};

// by_source: tokens of device d for expert e at [d * experts + e], which sum up to batch.tokens.
// 1 for each expert that is shadowed.
[[nodiscard]] std::vector<uint8_t> ChooseShadows(const Batch& batch,
                                                 std::span<const uint32_t> by_source,
                                                 const ShadowCost& cost);
// Tokens that each device computes then.
[[nodiscard]] std::vector<uint64_t> LoadsWithShadows(const Batch& batch,
                                                     std::span<const uint32_t> by_source,
                                                     std::span<const uint8_t> shadowed);

}  // namespace rewire::moe
