// Estimates a placement's cost in picoseconds, by LAER-MoE (arXiv 2602.11686 and its public code):
//   T = 4 * communication + (3 + recomputation) * max over devices of computation.
// Tokens are exchanged four times (dispatch and combine, forward and backward), and experts are
// computed once forward and twice backward. LAER's communication is the *sum* of the tokens that
// all devices send; tokens for the same device are free. The sum hides a hot link, so Rewire has a
// second objective. Its communication is the most that one device sends to or gets from other
// nodes. Its computation is divided by the number of devices. Both objectives weigh communication
// alike if all links are equally busy. (With undivided computation a link would hardly count:
// placements with slightly less computation had busier links than the sum's placements.)
// Pure functions: thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "reconfig/moe/plan/lite_routing.h"

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

[[nodiscard]] uint64_t LayoutCost(const RoutedTokens& routed, const LayoutRates& rates,
                                  Objective objective);

// Checks that the costs of `tokens` tokens fit into 64 bits; an error names the number.
[[nodiscard]] absl::Status CheckCost(uint64_t tokens, const LayoutRates& rates);

}  // namespace rewire::moe
