#include "reconfig/moe/relayout.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/demand.h"
#include "reconfig/moe/near_placement.h"
#include "reconfig/moe/replicas.h"

namespace rewire::moe {
namespace {

constexpr uint32_t kMostSlots = 1 << 17;

absl::Status CheckInput(const Counts& counts, const RelayoutOptions& options) {
  const uint64_t devices = uint64_t{options.topology.nodes} * options.topology.per_node;
  const uint64_t slots = devices * options.capacity;
  if (counts.experts() == 0 || counts.devices() != devices) {
    return absl::InvalidArgumentError(absl::StrCat("counts of ", counts.devices(), " devices and ",
                                                   counts.experts(), " experts for ", devices,
                                                   " devices"));
  }
  if (slots < counts.experts() || slots > kMostSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat(slots, " slots for ", counts.experts(), " experts; at most ", kMostSlots));
  }
  return CheckCost(counts, options.rates);
}

// The cheapest placement so far.
class Choice {
 public:
  Choice(const Counts& counts, const RelayoutOptions& options)
      : options_(options), routing_(options.topology, counts) {}

  void Consider(Placement placement) {
    const uint64_t cost = LayoutCost(routing_.Route(placement), options_.rates, options_.objective);
    if (cost < best_.cost_ps) best_ = {std::move(placement), cost};
  }

  // LAER's two candidates.
  void ConsiderLaers() {
    const uint32_t slots = options_.topology.devices() * options_.capacity;
    const auto load = routing_.of_expert();
    const auto even = EvenReplicas(slots, static_cast<uint32_t>(load.size()));
    const auto queue = QueueReplicas(load, slots, options_.topology.nodes);
    if (even.has_value())
      Consider(PlaceGreedily(options_.topology, options_.capacity, load, *even));
    if (queue != even) {
      Consider(PlaceGreedily(options_.topology, options_.capacity, load, queue));
    }
  }

  [[nodiscard]] const LiteRouting& routing() const { return routing_; }
  [[nodiscard]] Relayout& best() { return best_; }

 private:
  const RelayoutOptions& options_;
  LiteRouting routing_;
  Relayout best_{{}, UINT64_MAX};
};

}  // namespace

absl::StatusOr<Relayout> PlanAsLaer(const Counts& counts, const RelayoutOptions& options) {
  REWIRE_RETURN_IF_ERROR(CheckInput(counts, options));
  Choice choice(counts, options);
  choice.ConsiderLaers();
  return std::move(choice.best());
}

absl::StatusOr<Relayout> PlanRelayout(const Counts& counts, const RelayoutOptions& options) {
  REWIRE_RETURN_IF_ERROR(CheckInput(counts, options));
  Choice choice(counts, options);
  choice.ConsiderLaers();
  const LiteRouting& tokens = choice.routing();
  const Topology& topology = options.topology;
  std::optional<NodeCopies> copies = CopiesByDemand(tokens, topology, options.capacity);
  if (!copies.has_value()) {
    // Too few slots for every expert in every node: LAER's numbers, in nodes that have use for
    // them.
    std::vector<uint32_t> replicas(counts.experts());
    for (const uint32_t e : choice.best().placement.slots) {
      if (e != kEmptySlot) ++replicas[e];
    }
    copies = DivideByDemand(tokens, topology, options.capacity, replicas);
  }
  NearPlacement near = PlaceNear(tokens, counts, topology, options.capacity, *copies);
  choice.Consider(std::move(near.level));
  choice.Consider(std::move(near.near));
  SortSlots(&choice.best().placement);
  return std::move(choice.best());
}

}  // namespace rewire::moe
