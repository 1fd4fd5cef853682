// Plans which devices keep which experts for the next iterations, from the tokens of the last ones:
// LAER-MoE's plan (arXiv 2602.11686 and its public code) and Rewire's. FSEP (fully sharded
// expert parallelism) restores the weights from their shards before every layer anyway, so another
// placement needs no extra copies.
//
// Integer arithmetic, ties to the lowest number, bounded work and no clock: every rank derives the
// same placement from the same counts. Pure functions: thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/lite_routing.h"
#include "reconfig/moe/plan/placement.h"

namespace rewire::moe {

enum class Objective : uint8_t { kSum, kBusiestLink };

// Times per token. The defaults are the inputs of LAER's planner, its profile of Mixtral-8x7B on
// A100: 1.484375 us, 8,192 bytes, 216.269 and 88.9539 GB/s.
struct LayoutRates {
  uint32_t compute_ps = 1'484'375;
  uint32_t inside_ps = 37'879;   // to another device of the node
  uint32_t between_ps = 92'093;  // to another node
  bool recompute = true;         // the backward pass recomputes activations
};

// Estimates a placement's cost in picoseconds, by LAER-MoE (arXiv 2602.11686 and its public code):
//   T = 4 * communication + (3 + recomputation) * max over devices of computation.
// Tokens are exchanged four times (dispatch and combine, forward and backward), and experts are
// computed once forward and twice backward. LAER's communication is the *sum* of the tokens that
// all devices send; tokens for the same device are free. The sum hides a hot link, so Rewire has a
// second objective. Its communication is the most that one device sends to or gets from other
// nodes. Its computation is divided by the number of devices. Both objectives weigh communication
// alike if all links are equally busy. (With undivided computation a link would hardly count. The
// chosen placements then had slightly less computation, but busier links than kSum's placements.)
[[nodiscard]] uint64_t LayoutCost(const RoutedTokens& routed, const LayoutRates& rates,
                                  Objective objective);

// Checks that the costs and the scaled loads of `tokens` tokens fit into 64 bits. An error names
// the number and the limit.
[[nodiscard]] absl::Status CheckCost(uint64_t tokens, const LayoutRates& rates);

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
// greedily. Fails if the counts have no expert or are not of the topology's devices. Also fails if
// there are fewer slots than experts, or more than 2^17 slots, and as CheckCost() does.
[[nodiscard]] absl::StatusOr<Relayout> PlanAsLaer(const Counts& counts,
                                                  const RelayoutOptions& options);

// Rewire's plan. The candidates are LAER's for the sum of the iterations, and Rewire's own. Returns
// the candidate that is cheapest when each iteration is routed by itself. LAER weighs the sum
// alone, which levels out differences between iterations; yet devices wait for the busiest device
// in every iteration. For a single iteration the result never costs more than LAER's. The
// candidates are few on purpose: a search that exchanged slots while the cost fell made later
// iterations less even, because the search fitted chance differences. iterations: the last
// iterations, at least one. Fails as PlanAsLaer() does.
[[nodiscard]] absl::StatusOr<Relayout> PlanRelayout(std::span<const Counts> iterations,
                                                    const RelayoutOptions& options);

}  // namespace rewire::moe
