#include "reconfig/moe/plan/greedy.h"

#include <algorithm>
#include <optional>

namespace rewire::moe {

MovePlan GreedyMoves(const Batch& batch, const GreedyOptions& options) {
  std::vector<uint64_t> loads = Loads(batch);
  std::vector<uint32_t> received(batch.devices);
  std::vector<uint8_t> here = batch.dynamic;  // dynamic and still on its owner
  MovePlan plan;
  while (plan.size() < options.budget.copies) {
    const auto busiest =
        static_cast<uint32_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
    std::optional<uint32_t> idlest;
    for (uint32_t d = 0; d < batch.devices; ++d) {
      if (received[d] < options.budget.slots && (!idlest || loads[d] < loads[*idlest])) idlest = d;
    }
    if (!idlest) break;
    std::optional<uint32_t> expert;
    for (uint32_t e = 0; e < batch.tokens.size(); ++e) {
      const uint32_t tokens = batch.tokens[e];
      if (here[e] == 0 || batch.owner[e] != busiest || tokens < std::max(options.least, 1U)) {
        continue;
      }
      if (loads[*idlest] + tokens >= loads[busiest]) continue;
      if (!expert || tokens > batch.tokens[*expert]) expert = e;
    }
    if (!expert) break;
    const uint32_t tokens = batch.tokens[*expert];
    plan.push_back({*expert, *idlest, 0, tokens});
    here[*expert] = 0;
    loads[busiest] -= tokens;
    loads[*idlest] += tokens;
    ++received[*idlest];
  }
  return plan;
}

}  // namespace rewire::moe
