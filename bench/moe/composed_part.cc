#include "bench/moe/composed_part.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "reconfig/base/status_macros.h"
#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/node_tokens.h"
#include "reconfig/moe/plan/planners.h"
#include "reconfig/moe/plan/relayout.h"
#include "reconfig/moe/plan/replica_balance.h"

namespace rewire::bench {
namespace {

using moe::Counts;
using moe::NodeTokens;
using moe::Placement;
using moe::TransferPlan;

constexpr moe::Topology kTopology{4, 8};
constexpr int kHistory = 5, kMicroBatches = 2;
constexpr uint32_t kDynamic = 4;

// weights of the gate, up and down projections
constexpr uint64_t ExpertBytes(uint64_t hidden, uint64_t ffn) { return 3 * hidden * ffn * 2; }

// LAER's FSDP+EP: device j has experts j % (experts / capacity) + i * (experts / capacity).
Placement FixedPlacement(uint32_t experts, uint32_t capacity) {
  const uint32_t group = experts / capacity;
  Placement placement{capacity, {}};
  for (uint32_t d = 0; d < kTopology.devices(); ++d) {
    for (uint32_t c = 0; c < capacity; ++c) placement.slots.push_back(c * group + d % group);
  }
  return placement;
}

absl::StatusOr<std::vector<NodeTokens>> NodesOf(const Counts& counts, const Placement& placement) {
  moe::LiteRouting routing(kTopology, counts);
  const moe::RoutedTokens& routed = routing.Route(placement);
  std::vector<NodeTokens> nodes;
  for (uint32_t n = 0; n < kTopology.nodes; ++n) {
    REWIRE_ASSIGN_OR_RETURN(nodes.emplace_back(),
                            TokensOfNode(routed, placement, kTopology, counts.experts(), n));
  }
  return nodes;
}

TransferPlan PlanGreedily(const NodeTokens& node, uint32_t slots) {
  // Every device has kDynamic experts or fewer, so all may be moved, whatever the history.
  const std::vector<uint64_t> history(node.experts);
  const moe::ReplicaBatch replicas = ReplicasAsExperts(node, history, kDynamic);
  moe::GreedyOptions options;
  options.budget.slots = slots;
  return ToTransfers(replicas, GreedyMoves(replicas.batch, options));
}

double MaxOverMean(std::span<const NodeTokens> nodes, std::span<const TransferPlan> plans) {
  const std::vector<uint64_t> loads = Loads(nodes, plans);
  const auto sum = static_cast<double>(std::accumulate(loads.begin(), loads.end(), uint64_t{0}));
  const auto most = static_cast<double>(*std::max_element(loads.begin(), loads.end()));
  return most * static_cast<double>(loads.size()) / sum;
}

absl::Status AddBatch(const Counts& counts, const Placement& laer, const Placement& ours,
                      const ComposedSetup& setup, double weight, Composed* to) {
  const std::vector<TransferPlan> nothing(kTopology.nodes);
  const Placement fixed = FixedPlacement(setup.shape.experts, setup.capacity);
  REWIRE_ASSIGN_OR_RETURN(const std::vector<NodeTokens> fixed_nodes, NodesOf(counts, fixed));
  REWIRE_ASSIGN_OR_RETURN(const std::vector<NodeTokens> laer_nodes, NodesOf(counts, laer));
  REWIRE_ASSIGN_OR_RETURN(const std::vector<NodeTokens> our_nodes, NodesOf(counts, ours));
  std::vector<TransferPlan> greedy;
  for (const NodeTokens& n : fixed_nodes) greedy.push_back(PlanGreedily(n, setup.sizes.slots));
  const moe::Copied by_greedy = CopiedBy(fixed_nodes, greedy);
  moe::CopyBudget budget = setup.sizes;
  budget.bytes = by_greedy.Bytes(setup.sizes);
  const std::vector<TransferPlan> plans = BalanceReplicas(our_nodes, budget);
  for (size_t n = 0; n < plans.size(); ++n) {
    REWIRE_RETURN_IF_ERROR(Check(our_nodes[n], plans[n], budget));
  }
  const moe::Copied by_us = CopiedBy(our_nodes, plans);
  to->fixed += weight * MaxOverMean(fixed_nodes, nothing);
  to->greedy += weight * MaxOverMean(fixed_nodes, greedy);
  to->laer += weight * MaxOverMean(laer_nodes, nothing);
  to->relayout += weight * MaxOverMean(our_nodes, nothing);
  to->ours += weight * MaxOverMean(our_nodes, plans);
  to->greedy_bytes += weight * static_cast<double>(by_greedy.Bytes(setup.sizes));
  to->our_bytes += weight * static_cast<double>(by_us.Bytes(setup.sizes));
  to->greedy_copies += weight * by_greedy.experts;
  to->our_copies += weight * by_us.experts;
  return absl::OkStatus();
}

}  // namespace

ComposedSetup E8K2() {
  return {
      "e8k2", {32, 8, 16384, 2, 0.63, 0.32, 0.32}, 2, {0, ExpertBytes(4096, 14336), 4096 * 2, 8}};
}
ComposedSetup E16K4() {
  return {
      "e16k4", {32, 16, 16384, 4, 1.45, 0.39, 0.39}, 4, {0, ExpertBytes(4096, 7168), 4096 * 2, 8}};
}

absl::StatusOr<Composed> MeasureComposed(const ComposedSetup& setup, uint64_t seed,
                                         int iterations) {
  moe::RelayoutOptions options;
  options.topology = kTopology;
  options.capacity = setup.capacity;
  const double weight = 1.0 / (iterations * kMicroBatches);
  LayerCounts source(setup.shape, seed);
  moe::History history(kHistory);
  Composed composed;
  for (int i = 0; i < kHistory + iterations; ++i) {
    const Counts batches[kMicroBatches] = {source.Next(), source.Next()};
    Counts both = batches[0];
    both.Add(batches[1]);
    if (i >= kHistory) {
      const std::vector<Counts> before = history.Iterations();
      Counts sum = before[0];
      for (size_t h = 1; h < before.size(); ++h) sum.Add(before[h]);
      REWIRE_ASSIGN_OR_RETURN(const moe::Relayout laer, PlanAsLaer(sum, options));
      REWIRE_ASSIGN_OR_RETURN(const moe::Relayout ours, PlanRelayout(before, options));
      for (const Counts& batch : batches) {
        REWIRE_RETURN_IF_ERROR(
            AddBatch(batch, laer.placement, ours.placement, setup, weight, &composed));
      }
    }
    history.Add(std::move(both));
  }
  return composed;
}

}  // namespace rewire::bench
