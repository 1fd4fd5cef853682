#include "reconfig/moe/plan/relayout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/plan/near_placement.h"

namespace rewire::moe {
namespace {

uint64_t Most(const std::vector<uint64_t>& tokens) {
  return *std::max_element(tokens.begin(), tokens.end());
}

constexpr uint32_t kMostSlots = 1 << 17;

absl::Status CheckInput(const Counts& counts, const RelayoutOptions& options) {
  const uint64_t devices = uint64_t{options.topology.nodes} * options.topology.per_node;
  const uint64_t slots = devices * options.capacity;
  if (counts.experts() == 0 || counts.devices() != devices) {
    return absl::InvalidArgumentError(absl::StrCat("counts: devices=", counts.devices(),
                                                   " experts=", counts.experts(), ": must be ",
                                                   devices, " devices and at least 1 expert"));
  }
  if (slots < counts.experts() || slots > kMostSlots) {
    return absl::InvalidArgumentError(absl::StrCat("slots=", slots, ": must be at least ",
                                                   counts.experts(), " (experts) and at most ",
                                                   kMostSlots));
  }
  return absl::OkStatus();
}

// Sums of placements' costs over iterations, and the cheapest placement so far.
class Choice {
 public:
  Choice(std::span<const Counts> iterations, const RelayoutOptions& options) : options_(options) {
    routings_.reserve(iterations.size());
    for (const Counts& c : iterations) routings_.emplace_back(options.topology, c);
  }

  void Consider(Placement placement) {
    uint64_t cost = 0;
    for (LiteRouting& r : routings_) {
      cost += LayoutCost(r.Route(placement), options_.rates, options_.objective);
    }
    if (cost < best_.cost_ps) best_ = {std::move(placement), cost};
  }
  [[nodiscard]] Relayout& best() { return best_; }

 private:
  const RelayoutOptions& options_;
  std::vector<LiteRouting> routings_;
  Relayout best_{{}, UINT64_MAX};
};

void ConsiderLaers(std::span<const uint64_t> load, const RelayoutOptions& options, Choice* choice) {
  const uint32_t slots = options.topology.devices() * options.capacity;
  const auto even = EvenReplicas(slots, static_cast<uint32_t>(load.size()));
  const auto queue = QueueReplicas(load, slots, options.topology.nodes);
  if (even.has_value()) {
    choice->Consider(PlaceGreedily(options.topology, options.capacity, load, *even));
  }
  if (queue != even) {
    choice->Consider(PlaceGreedily(options.topology, options.capacity, load, queue));
  }
}

// Considers candidates between LAER's two: replicas by loads of which `quarters` quarters are equal
// for all experts. If loads change between iterations, these candidates are more even.
void ConsiderMixed(std::span<const uint64_t> load, const RelayoutOptions& options, Choice* choice) {
  const uint32_t slots = options.topology.devices() * options.capacity;
  const uint64_t mean = std::accumulate(load.begin(), load.end(), uint64_t{0}) / load.size();
  std::vector<uint64_t> mixed(load.size());
  for (const uint64_t quarters : {1, 2, 3}) {
    for (size_t e = 0; e < load.size(); ++e) {
      mixed[e] = (load[e] * (4 - quarters) + mean * quarters) / 4;
    }
    choice->Consider(PlaceGreedily(options.topology, options.capacity, load,
                                   QueueReplicas(mixed, slots, options.topology.nodes)));
  }
}

}  // namespace

uint64_t LayoutCost(const RoutedTokens& routed, const LayoutRates& rates, Objective objective) {
  const uint64_t computation =
      (rates.recompute ? 4 : 3) * Most(routed.computed) * uint64_t{rates.compute_ps};
  if (objective == Objective::kSum) {
    return 4 * (routed.inside * rates.inside_ps + routed.between * rates.between_ps) + computation;
  }
  const uint64_t busiest = std::max(Most(routed.leaving), Most(routed.arriving));
  return 4 * busiest * rates.between_ps + computation / routed.computed.size();
}

absl::Status CheckCost(uint64_t tokens, const LayoutRates& rates) {
  // Planners also compare loads in units of 1/2^16 tokens and multiply loads by replicas
  // (reconfig/moe/plan/placement.h).
  const uint64_t dearest = std::max({rates.compute_ps, rates.inside_ps, rates.between_ps});
  const uint64_t most =
      std::min(uint64_t{1} << 46, UINT64_MAX / 8 / std::max<uint64_t>(1, dearest));
  if (tokens > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(tokens, " tokens; a plan can be made for at most ", most));
  }
  return absl::OkStatus();
}

absl::StatusOr<Relayout> PlanAsLaer(const Counts& counts, const RelayoutOptions& options) {
  REWIRE_RETURN_IF_ERROR(CheckInput(counts, options));
  const LiteRouting tokens(options.topology, counts);
  REWIRE_RETURN_IF_ERROR(CheckCost(tokens.all(), options.rates));
  Choice choice(std::span(&counts, 1), options);
  ConsiderLaers(tokens.of_expert(), options, &choice);
  return std::move(choice.best());
}

absl::StatusOr<Relayout> PlanRelayout(std::span<const Counts> iterations,
                                      const RelayoutOptions& options) {
  for (const Counts& c : iterations) REWIRE_RETURN_IF_ERROR(CheckInput(c, options));
  Counts sum = iterations[0];
  for (const Counts& c : iterations.subspan(1)) sum.Add(c);
  const LiteRouting tokens(options.topology, sum);
  REWIRE_RETURN_IF_ERROR(CheckCost(tokens.all(), options.rates));

  const Topology& topology = options.topology;
  Choice choice(iterations, options);
  ConsiderLaers(tokens.of_expert(), options, &choice);
  if (iterations.size() > 1) ConsiderMixed(tokens.of_expert(), options, &choice);
  std::optional<NodeCopies> copies = CopiesByDemand(tokens, topology, options.capacity);
  if (!copies.has_value()) {
    // There are too few slots for every expert in every node. The best candidate's numbers of
    // replicas are divided among the nodes by their demand.
    std::vector<uint32_t> replicas(sum.experts());
    for (const uint32_t e : choice.best().placement.slots) {
      if (e != kEmptySlot) ++replicas[e];
    }
    copies = DivideByDemand(tokens, topology, options.capacity, replicas);
  }
  NearPlacement near = PlaceNear(tokens, sum, topology, options.capacity, *copies);
  choice.Consider(std::move(near.level));
  choice.Consider(std::move(near.near));
  SortSlots(&choice.best().placement);
  return std::move(choice.best());
}

}  // namespace rewire::moe
