// Plans which devices keep which experts for the next iterations, from the tokens of the last ones:
// LAER-MoE's plan (arXiv 2602.11686 and its public code) and Rewire's. FSEP restores the weights
// from their shards before every layer anyway, so another placement needs no extra copies.
//
// Integer arithmetic, ties to the lowest number, bounded work and no clock: every rank derives the
// same placement from the same counts. Pure functions: thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/layout_cost.h"
#include "reconfig/moe/plan/placement.h"
#include "reconfig/moe/plan/topology.h"

namespace rewire::moe {

struct RelayoutOptions {
  Topology topology;
  uint32_t capacity = 2;  // slots of one device
  LayoutRates rates;
  Objective objective = Objective::kSum;
};

struct Relayout {
  Placement placement;
  uint64_t cost_ps = 0;  // LayoutCost() of `placement`, summed over the iterations
};

// Returns LAER's cheaper candidate for these counts: even replicas or replicas by load, each placed
// greedily. Fails if the counts are not of the topology's devices, or there are fewer slots than
// experts or more than 2^17. Also fails if the tokens' costs do not fit 64 bits; names the cause.
[[nodiscard]] absl::StatusOr<Relayout> PlanAsLaer(const Counts& counts,
                                                  const RelayoutOptions& options);

// Rewire's plan: returns the cheapest candidate when each iteration is routed by itself, from
// LAER's candidates for the sum and Rewire's own candidates. LAER weighs the sum alone, which
// levels out differences between iterations; yet devices wait for the busiest device in every
// iteration. For a single iteration the result never costs more than LAER's. The candidates are few
// on purpose. Exchanging slots while that lowered the cost made later iterations less even, because
// the exchanges fitted chance. iterations: the last ones, at least one. Fails as PlanAsLaer() does.
[[nodiscard]] absl::StatusOr<Relayout> PlanRelayout(std::span<const Counts> iterations,
                                                    const RelayoutOptions& options);

}  // namespace rewire::moe
