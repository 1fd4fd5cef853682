#include "bench/moe/shifting_part.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "bench/moe/trace.h"
#include "reconfig/moe/exec/node_plan.h"
#include "reconfig/moe/plan/batch.h"

namespace rewire::bench {
namespace {

struct Evened {
  double max_over_mean = 0;
  double copies = 0;
};

// Copies are free here, so only the choice of experts limits the result.
Evened Plan(const moe::Batch& batch, const moe::Shape& shape, bool by_counts) {
  std::vector<moe::Posting> postings(batch.devices);
  for (uint32_t rank = 0; rank < batch.devices; ++rank) {
    moe::Posting& p = postings[rank];
    const auto first = ptrdiff_t{rank} * shape.experts;
    const auto end = first + ptrdiff_t{shape.experts};
    p.tokens.assign(batch.tokens.begin() + first, batch.tokens.begin() + end);
    p.dynamic.assign(batch.dynamic.begin() + first, batch.dynamic.begin() + end);
    if (by_counts) p.dynamic = moe::ChooseDynamic(p.tokens, shape.dynamic);
    p.copies = shape.slots * batch.devices;
    p.slots.resize(shape.slots);
  }
  std::vector<uint64_t> loads = moe::Loads(batch);
  const moe::NodePlan plan = moe::PlanNode(postings, shape);
  for (const moe::PlacedMove& s : plan.moves) {
    loads[s.from] -= s.move.tokens;
    loads[s.move.to] += s.move.tokens;
  }
  const auto sum = static_cast<double>(std::accumulate(loads.begin(), loads.end(), uint64_t{0}));
  const auto most = static_cast<double>(*std::max_element(loads.begin(), loads.end()));
  return {most * batch.devices / sum, static_cast<double>(plan.moves.size())};
}

}  // namespace

Shifting MeasureShifting(uint32_t devices, double sigma, uint64_t seed, int batches) {
  TraceShape trace_shape;
  trace_shape.devices = devices;
  trace_shape.sigma = sigma;
  trace_shape.shift = 2;
  Trace trace(trace_shape, seed);
  moe::Shape shape;
  shape.experts = trace_shape.experts / devices;
  shape.weight_bytes = 72 << 20;
  shape.token_bytes = 12 << 10;
  shape.rows = trace_shape.tokens * trace_shape.top * devices;
  shape.dynamic = trace_shape.dynamic;
  shape.gate_percent = 100;
  for (int i = 0; i < 8; ++i) trace.Next();
  Shifting shifting;
  for (int i = 0; i < batches; ++i) {
    trace.Next();
    const moe::Batch& batch = trace.batch();
    const double all = static_cast<double>(batch.devices) * trace_shape.tokens * trace_shape.top;
    const double mean = all / batch.devices;
    const std::vector<uint64_t> loads = moe::Loads(batch);
    const auto most = static_cast<double>(*std::max_element(loads.begin(), loads.end()));
    shifting.none += most / mean / batches;
    shifting.by_history += Plan(batch, shape, false).max_over_mean / batches;
    const Evened evened = Plan(batch, shape, true);
    shifting.by_counts += evened.max_over_mean / batches;
    shifting.copies += evened.copies / batches;
    shifting.worst_by_counts = std::max(shifting.worst_by_counts, evened.max_over_mean);
  }
  return shifting;
}

}  // namespace rewire::bench
