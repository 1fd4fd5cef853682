// FasterMoE's dynamic shadowing (PPoPP'22; the policy after its public code), a baseline. The
// weights of popular experts are broadcast, and every device computes its own tokens for them.
// Experts are taken by falling load while the model's latency falls. FasterMoE's model has one
// expert on each device, so the busiest device here takes the place of the busiest expert. Pure
// functions: thread-safe.
#pragma once

#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {

// All times are in picoseconds.
struct ShadowCost {
  uint64_t token = 155'000;       // to compute one token, in one of three passes
  uint64_t feature = 27'000;      // to send one token, one of four times
  uint64_t expert = 168'000'000;  // to send an expert's weights to all
};

// by_source: tokens of device d for expert e at [d * experts + e], which sum up to batch.tokens.
// Returns 1 for each shadowed expert.
[[nodiscard]] std::vector<uint8_t> ChooseShadows(const Batch& batch,
                                                 std::span<const uint32_t> by_source,
                                                 const ShadowCost& cost);
// Returns the tokens that each device computes with these shadows.
[[nodiscard]] std::vector<uint64_t> LoadsWithShadows(const Batch& batch,
                                                     std::span<const uint32_t> by_source,
                                                     std::span<const uint8_t> shadowed);

}  // namespace rewire::moe
