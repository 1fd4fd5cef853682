#include "reconfig/moe/exec/node_plan.h"

#include <algorithm>

namespace rewire::moe {

NodePlan PlanNode(std::span<const Posting> postings, const Shape& shape) {
  NodePlan plan;
  Batch batch;
  batch.devices = static_cast<uint32_t>(postings.size());
  BalanceOptions options;
  Holdings holdings;
  holdings.stay = true;
  for (uint32_t rank = 0; rank < batch.devices; ++rank) {
    const Posting& posting = postings[rank];
    batch.tokens.insert(batch.tokens.end(), posting.tokens.begin(), posting.tokens.end());
    batch.dynamic.insert(batch.dynamic.end(), posting.dynamic.begin(), posting.dynamic.end());
    batch.owner.insert(batch.owner.end(), shape.experts, rank);
    options.budget.copies = std::min(options.budget.copies, posting.copies);
    plan.speeds.row = std::max(plan.speeds.row, posting.speeds.row);
    plan.speeds.kib = std::max(plan.speeds.kib, posting.speeds.kib);
    plan.speeds.start = std::max(plan.speeds.start, posting.speeds.start);
    holdings.slots.push_back(posting.slots);
    holdings.stay = holdings.stay && posting.stay;
  }
  options.gate_percent = shape.gate_percent;
  options.least = shape.least;
  plan.stay = holdings.stay;
  plan.moves = ChooseMoves(batch, options, shape, plan.speeds, holdings);
  return plan;
}

}  // namespace rewire::moe
