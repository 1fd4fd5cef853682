#include "reconfig/moe/plan/replicas.h"

#include <queue>

namespace rewire::moe {

std::optional<std::vector<uint32_t>> EvenReplicas(uint32_t slots, uint32_t experts) {
  if (slots % experts != 0) return std::nullopt;
  return std::vector<uint32_t>(experts, slots / experts);
}

std::vector<uint32_t> QueueReplicas(std::span<const uint64_t> load, uint32_t slots,
                                    uint32_t nodes) {
  const auto experts = static_cast<uint32_t>(load.size());
  const uint32_t first = uint64_t{nodes} * experts <= slots ? nodes : 1;
  std::vector<uint32_t> replicas(experts, first);
  uint32_t used = first * experts;

  const auto less_per_replica = [&](uint32_t a, uint32_t b) {
    const uint64_t left = load[a] * replicas[b], right = load[b] * replicas[a];
    return left != right ? left < right : a > b;
  };
  std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(less_per_replica)> queue(
      less_per_replica);
  for (uint32_t e = 0; e < experts; ++e) queue.push(e);
  while (used < slots && !queue.empty()) {
    const uint32_t e = queue.top();
    queue.pop();
    const uint32_t more = replicas[e] < nodes ? 1 : nodes;
    if (used + more > slots) continue;  // the expert keeps its replicas
    replicas[e] += more;
    used += more;
    queue.push(e);
  }
  return replicas;
}

}  // namespace rewire::moe
