#include "bench/moe/shadowing.h"

#include <algorithm>
#include <optional>

namespace rewire::moe {

std::vector<uint8_t> ChooseShadows(const Batch& batch, std::span<const uint32_t> by_source,
                                   const ShadowCost& cost) {
  const size_t experts = batch.tokens.size();
  std::vector<uint8_t> shadowed(experts);
  std::vector<uint64_t> loads = Loads(batch);
  const auto latency = [&](uint64_t broadcasts) {
    const uint64_t most = *std::max_element(loads.begin(), loads.end());
    return most * (3 * cost.token + 4 * cost.feature) + broadcasts * cost.expert;
  };
  uint64_t best = latency(0);
  for (uint64_t broadcasts = 1;; ++broadcasts) {
    const auto busiest =
        static_cast<uint32_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
    std::optional<uint32_t> next;
    for (uint32_t e = 0; e < experts; ++e) {
      if (shadowed[e] != 0 || batch.owner[e] != busiest) continue;
      if (!next || batch.tokens[e] > batch.tokens[*next]) next = e;
    }
    if (!next) break;
    loads[busiest] -= batch.tokens[*next];
    for (uint32_t d = 0; d < batch.devices; ++d) loads[d] += by_source[d * experts + *next];
    const uint64_t now = latency(broadcasts);
    if (now >= best) break;
    best = now;
    shadowed[*next] = 1;
  }
  return shadowed;
}

std::vector<uint64_t> LoadsWithShadows(const Batch& batch, std::span<const uint32_t> by_source,
                                       std::span<const uint8_t> shadowed) {
  const size_t experts = batch.tokens.size();
  std::vector<uint64_t> loads = Loads(batch);
  for (size_t e = 0; e < experts; ++e) {
    if (shadowed[e] == 0) continue;
    loads[batch.owner[e]] -= batch.tokens[e];
    for (uint32_t d = 0; d < batch.devices; ++d) loads[d] += by_source[d * experts + e];
  }
  return loads;
}

}  // namespace rewire::moe
