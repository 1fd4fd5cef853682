// Which experts to keep where for the iterations to come, from the tokens of those before:
// LAER-MoE's plan (arXiv 2602.11686 and its public code), and ours. The weights are restored from
// their shards before every layer anyway (FSEP), so that another placement costs no copies.
//
// Integers, ties to the lowest number, bounded work and no clock: every rank derives the same
// placement from the same counts. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "reconfig/moe/counts.h"
#include "reconfig/moe/layout_cost.h"
#include "reconfig/moe/placement.h"
#include "reconfig/moe/topology.h"

namespace rewire::moe {

struct RelayoutOptions {
  Topology topology;
  uint32_t capacity = 2;  // slots of a device
  LayoutRates rates;
  Objective objective = Objective::kSum;
};

struct Relayout {
  Placement placement;
  uint64_t cost_ps = 0;  // LayoutCost() of it, summed over the iterations
};

// The cheaper, for these counts, of LAER's two: even replicas and replicas by load, each placed
// greedily. Fails, and says why, where the counts are not of the topology's devices, there are
// fewer slots than experts or more than 2^17, or the costs of so many tokens do not fit into 64
// bits.
[[nodiscard]] absl::StatusOr<Relayout> PlanAsLaer(const Counts& counts,
                                                  const RelayoutOptions& options);

// Ours: what is cheapest when each of the iterations is routed by itself, of LAER's candidates for
// their sum and of our own. LAER weighs the sum alone, where what differs between iterations has
// levelled out; devices wait for the busiest in every one. Of one iteration it is never dearer than
// LAER's. There are few candidates on purpose: exchanging slots for as long as that helped made the
// iterations after these less even, for it fitted what was chance. iterations: the last ones, at
// least one. Fails as PlanAsLaer().
[[nodiscard]] absl::StatusOr<Relayout> PlanRelayout(std::span<const Counts> iterations,
                                                    const RelayoutOptions& options);

}  // namespace rewire::moe
