#include "reconfig/moe/plan/replica_batch.h"

#include <algorithm>

namespace rewire::moe {

ReplicaBatch ReplicasAsExperts(const NodeTokens& node, std::span<const uint64_t> history,
                               uint32_t dynamic) {
  ReplicaBatch out;
  out.batch.devices = node.devices;
  std::vector<uint32_t> order;
  for (uint32_t d = 0; d < node.devices; ++d) {
    const auto first = static_cast<uint32_t>(out.expert.size());
    order.clear();
    for (uint32_t e = 0; e < node.experts; ++e) {
      const size_t at = size_t{e} * node.devices + d;
      if (node.replicas[at] == 0) continue;
      order.push_back(static_cast<uint32_t>(out.expert.size()));
      out.expert.push_back(e);
      out.batch.tokens.push_back(node.tokens[at]);
      out.batch.owner.push_back(d);
    }
    out.batch.dynamic.resize(out.expert.size());
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return history[out.expert[a]] > history[out.expert[b]];
    });
    const size_t some = std::min<size_t>(dynamic, out.expert.size() - first);
    for (size_t i = 0; i < some; ++i) out.batch.dynamic[order[i]] = 1;
  }
  return out;
}

TransferPlan ToTransfers(const ReplicaBatch& replicas, const MovePlan& plan) {
  TransferPlan out;
  for (const Move& m : plan) {
    out.push_back(
        {replicas.expert[m.expert], replicas.batch.owner[m.expert], m.to, m.first, m.tokens});
  }
  return out;
}

}  // namespace rewire::moe
