#include "bench/moe/quality.h"

#include <algorithm>
#include <numeric>

#include "bench/moe/eplb.h"
#include "bench/moe/shadowing.h"
#include "bench/moe/trace.h"
#include "reconfig/moe/plan/planners.h"

namespace rewire::bench {
namespace {

// Micro-batches before the measurement: the history from which dynamic experts are chosen.
constexpr int kWarmUp = 8;

// Each device's tokens, and its GEMMs' experts beside its own experts; negative: fewer.
struct Outcome {
  std::vector<uint64_t> loads;
  std::vector<int64_t> extra;
  uint64_t copies = 0;
};

Outcome Of(const moe::Batch& batch, const moe::MovePlan& plan) {
  Outcome out{moe::Loads(batch, plan), std::vector<int64_t>(batch.devices), plan.size()};
  std::vector<uint32_t> left = batch.tokens;
  for (const moe::Move& m : plan) {
    ++out.extra[m.to];
    left[m.expert] -= m.tokens;
    if (left[m.expert] == 0) --out.extra[batch.owner[m.expert]];
  }
  return out;
}

Outcome Shadowed(const Trace& trace) {
  const moe::Batch& batch = trace.batch();
  const std::vector<uint8_t> chosen = moe::ChooseShadows(batch, trace.by_source(), {});
  Outcome out{moe::LoadsWithShadows(batch, trace.by_source(), chosen),
              std::vector<int64_t>(batch.devices)};
  for (size_t e = 0; e < chosen.size(); ++e) {
    if (chosen[e] == 0) continue;
    out.copies += batch.devices - 1;
    for (uint32_t d = 0; d < batch.devices; ++d) out.extra[d] += d == batch.owner[e] ? 0 : 1;
  }
  return out;
}

Outcome Eplb(const Trace& trace) {
  const moe::Batch& batch = trace.batch();
  moe::EplbShape shape;
  shape.devices = batch.devices;
  shape.slots = static_cast<uint32_t>(batch.tokens.size() / batch.devices + 1);
  const std::vector<uint32_t> slots = moe::PackReplicas(trace.history(), shape);
  return {moe::LoadsOfReplicas(batch.tokens, slots, batch.devices),
          std::vector<int64_t>(batch.devices, 1)};
}

Outcome Bound(const moe::Batch& batch) {
  Outcome out{std::vector<uint64_t>(batch.devices), std::vector<int64_t>(batch.devices)};
  const std::vector<uint64_t> loads = moe::Loads(batch);
  const uint64_t sum = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
  std::fill(out.loads.begin(), out.loads.end(), sum / batch.devices);
  out.loads[0] = moe::LowestPossible(batch);
  return out;
}

Outcome Plan(Way way, const Trace& trace, uint64_t copies) {
  const moe::Batch& batch = trace.batch();
  switch (way) {
    case Way::kShadowing:
      return Shadowed(trace);
    case Way::kEplb:
      return Eplb(trace);
    case Way::kSplit:
      return Of(batch, moe::SplitMoves(batch, {}));
    case Way::kSplitUngated:
      return Of(batch, moe::SplitMoves(batch, {.gate_percent = 100}));
    case Way::kGreedy:
      return Of(batch, moe::GreedyMoves(batch, {}));
    case Way::kOurs: {
      moe::BalanceOptions options;
      options.budget.copies = static_cast<uint32_t>(copies);
      return Of(batch, moe::BalanceMoves(batch, options));
    }
    case Way::kBound:
      return Bound(batch);
    case Way::kNone:
      break;
  }
  return Of(batch, {});
}

double GemmStraggler(const Outcome& outcome, const GemmTime& gemm) {
  double most = 0;
  double sum = 0;
  for (size_t d = 0; d < outcome.loads.size(); ++d) {
    const double us = static_cast<double>(outcome.loads[d]) * gemm.token_us +
                      static_cast<double>(outcome.extra[d]) * gemm.expert_us;
    most = std::max(most, us);
    sum += us;
  }
  return most - sum / static_cast<double>(outcome.loads.size());
}

}  // namespace

std::array<Evenness, kWayNames.size()> MeasureSeed(uint32_t devices, uint64_t seed, int batches,
                                                   const GemmTime& gemm) {
  TraceShape shape;
  shape.devices = devices;
  Trace trace(shape, seed);
  for (int i = 0; i < kWarmUp; ++i) trace.Next();
  std::array<Evenness, kWayNames.size()> sums;
  for (int i = 0; i < batches; ++i) {
    trace.Next();
    const uint64_t none = moe::Straggler(moe::Loads(trace.batch()));
    const uint64_t copies = Plan(Way::kGreedy, trace, 0).copies;
    for (size_t w = 0; w < sums.size(); ++w) {
      const Outcome outcome = Plan(static_cast<Way>(w), trace, copies);
      const uint64_t straggler = moe::Straggler(outcome.loads);
      sums[w].token_straggler += static_cast<double>(straggler) / batches;
      sums[w].gemm_straggler_us += GemmStraggler(outcome, gemm) / batches;
      sums[w].copies += static_cast<double>(outcome.copies) / batches;
      sums[w].worse = sums[w].worse || straggler > none;
    }
  }
  return sums;
}

}  // namespace rewire::bench
