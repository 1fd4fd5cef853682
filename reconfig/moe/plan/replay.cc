#include "reconfig/moe/plan/replay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/plan/lite_routing.h"
#include "reconfig/moe/plan/node_tokens.h"
#include "reconfig/moe/plan/planners.h"
#include "reconfig/moe/plan/relayout.h"
#include "reconfig/moe/plan/replica_balance.h"

namespace rewire::moe {

absl::StatusOr<Replay> Replay::Create(const ReplayOptions& options) {
  Replay replay(options);
  const uint32_t devices = options.shape.topology.devices(), experts = options.shape.experts;
  uint32_t& capacity = replay.options_.capacity;
  if (capacity == 0) capacity = (experts + devices - 1) / devices;
  const uint64_t slots = uint64_t{devices} * capacity;
  if (slots < experts || slots > uint64_t{1} << 24) {
    return absl::InvalidArgumentError(absl::StrCat("capacity=", capacity, ": slots of ", devices,
                                                   " devices=", slots, ": must be at least ",
                                                   experts, " (experts) and at most 2^24"));
  }
  replay.fixed_ = {capacity, std::vector<uint32_t>(slots, kEmptySlot)};
  const uint64_t replicas = slots / experts * experts;
  for (uint64_t d = 0; d < devices; ++d) {
    const uint64_t first = replicas * d / devices, last = replicas * (d + 1) / devices;
    for (uint64_t r = first; r < last; ++r) {
      replay.fixed_.slots[d * capacity + r - first] = static_cast<uint32_t>(r % experts);
    }
  }
  return replay;
}

absl::StatusOr<Replayed> Replay::Next(const Recorded& recorded) {
  Layer& layer = layers_[recorded.layer];
  layer.faded.resize(options_.shape.experts);
  REWIRE_ASSIGN_OR_RETURN(std::vector<NodeTokens> nodes, Nodes(recorded.counts, fixed_));
  std::vector<TransferPlan> plans(nodes.size());
  Replayed replayed;
  replayed.before = Loads(nodes, plans);

  const ReplayPlan plan = options_.plan;
  const bool composed = plan == ReplayPlan::kComposed;
  for (size_t n = 0; n < nodes.size(); ++n) {
    plans[n] = PlanMoves(nodes[n], layer, composed ? ReplayPlan::kGreedy : plan);
  }
  if (composed || plan == ReplayPlan::kLaer || plan == ReplayPlan::kRelayout) {
    CopyBudget budget = options_.sizes;
    budget.bytes = CopiedBy(nodes, plans).Bytes(budget);
    REWIRE_ASSIGN_OR_RETURN(const Placement placement, PlanPlacement(layer));
    REWIRE_ASSIGN_OR_RETURN(nodes, Nodes(recorded.counts, placement));
    if (composed) plans = BalanceReplicas(nodes, budget);
  }
  replayed.after = Loads(nodes, plans);
  replayed.copied = CopiedBy(nodes, plans);

  for (uint32_t e = 0; e < options_.shape.experts; ++e) {
    uint64_t tokens = 0;
    for (uint32_t d = 0; d < recorded.counts.devices(); ++d) tokens += recorded.counts.at(d, e);
    layer.faded[e] = layer.faded[e] / 8 * 7 + tokens;
  }
  layer.last.Add(recorded.counts);
  return replayed;
}

absl::StatusOr<std::vector<NodeTokens>> Replay::Nodes(const Counts& counts,
                                                      const Placement& placement) const {
  const Topology& topology = options_.shape.topology;
  LiteRouting routing(topology, counts);
  const RoutedTokens& routed = routing.Route(placement);
  std::vector<NodeTokens> nodes;
  for (uint32_t n = 0; n < topology.nodes; ++n) {
    REWIRE_ASSIGN_OR_RETURN(nodes.emplace_back(),
                            TokensOfNode(routed, placement, topology, counts.experts(), n));
  }
  return nodes;
}

TransferPlan Replay::PlanMoves(const NodeTokens& node, const Layer& layer, ReplayPlan plan) const {
  const bool all = plan == ReplayPlan::kSplit;
  const ReplicaBatch replicas =
      ReplicasAsExperts(node, layer.faded, all ? UINT32_MAX : options_.dynamic);
  const Budget budget{UINT32_MAX, options_.sizes.slots};
  MovePlan moves;
  if (plan == ReplayPlan::kSplit) moves = SplitMoves(replicas.batch, {});
  if (plan == ReplayPlan::kGreedy || plan == ReplayPlan::kBalance) {
    moves = GreedyMoves(replicas.batch, {budget, 1});
  }
  if (plan == ReplayPlan::kBalance) {
    BalanceOptions options;
    options.budget = {static_cast<uint32_t>(moves.size()), budget.slots};
    moves = BalanceMoves(replicas.batch, options);
  }
  return ToTransfers(replicas, moves);
}

absl::StatusOr<Placement> Replay::PlanPlacement(const Layer& layer) const {
  const std::vector<Counts> last = layer.last.Iterations();
  if (last.empty()) return fixed_;
  RelayoutOptions options;
  options.topology = options_.shape.topology;
  options.capacity = options_.capacity;
  if (options_.plan != ReplayPlan::kLaer) {
    REWIRE_ASSIGN_OR_RETURN(Relayout ours, PlanRelayout(last, options));
    return std::move(ours.placement);
  }
  Counts sum = last[0];
  for (size_t i = 1; i < last.size(); ++i) sum.Add(last[i]);
  REWIRE_ASSIGN_OR_RETURN(Relayout laers, PlanAsLaer(sum, options));
  return std::move(laers.placement);
}

}  // namespace rewire::moe
