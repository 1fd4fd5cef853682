#include "reconfig/moe/split.h"

#include <algorithm>
#include <numeric>

namespace rewire::moe {

MovePlan SplitMoves(const Batch& batch, const SplitOptions& options) {
  // What a device has been given, and what of its own is still to be given out.
  std::vector<uint64_t> loads = Loads(batch);
  const uint64_t sum = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
  const uint64_t most = *std::max_element(loads.begin(), loads.end());
  MovePlan plan;
  if (batch.devices == 1 || most * batch.devices * 100 <= sum * options.gate_percent) return plan;
  const uint64_t capacity = sum * options.capacity_percent / 100 / batch.devices;
  std::vector<uint32_t> order(batch.tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return batch.tokens[a] > batch.tokens[b]; });
  std::vector<uint64_t> given(batch.devices);
  for (const uint32_t e : order) {
    const uint32_t owner = batch.owner[e];
    const uint64_t room = capacity > given[owner] ? capacity - given[owner] : 0;
    uint64_t left = batch.tokens[e];
    const uint64_t kept = std::min(left, room);
    given[owner] += kept;
    left -= kept;
    std::vector<uint8_t> has(batch.devices);
    has[owner] = 1;
    while (left > 0) {
      uint32_t to = batch.devices;
      for (uint32_t d = 0; d < batch.devices; ++d) {
        if (has[d] == 0 && (to == batch.devices || loads[d] < loads[to])) to = d;
      }
      if (to == batch.devices) {  // everybody has a piece: the owner keeps the rest
        given[owner] += left;
        break;
      }
      const uint64_t free = capacity > loads[to] ? capacity - loads[to] : 0;
      const uint64_t chunk = std::min(left, std::max<uint64_t>(free, std::max(options.least, 1U)));
      left -= chunk;
      plan.push_back({e, to, static_cast<uint32_t>(left + kept), static_cast<uint32_t>(chunk)});
      has[to] = 1;
      given[to] += chunk;
      loads[to] += chunk;
      loads[owner] -= chunk;
    }
  }
  return plan;
}

}  // namespace rewire::moe
