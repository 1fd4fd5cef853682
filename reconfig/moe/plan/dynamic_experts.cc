#include "reconfig/moe/plan/dynamic_experts.h"

#include <algorithm>
#include <numeric>

namespace rewire::moe {

std::vector<uint8_t> ChooseDynamic(std::span<const uint32_t> tokens, uint32_t least) {
  std::vector<uint32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return tokens[a] > tokens[b]; });
  const uint64_t all = std::accumulate(tokens.begin(), tokens.end(), uint64_t{0});
  std::vector<uint8_t> dynamic(tokens.size());
  uint64_t held = 0;
  for (size_t i = 0; i < order.size() && (i < least || held * 2 < all); ++i) {
    dynamic[order[i]] = 1;
    held += tokens[order[i]];
  }
  return dynamic;
}

}  // namespace rewire::moe
