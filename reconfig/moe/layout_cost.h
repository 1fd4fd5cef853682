// What a placement costs, in picoseconds: LAER-MoE's model (arXiv 2602.11686 and its public code),
//   T = 4 * communication + (3 + recomputation) * max over devices of computation,
// where tokens are exchanged four times (dispatch and combine, forward and backward) and experts
// are computed once forward and twice backward. LAER's communication is the *sum* over all devices
// of what each sends; a device's own tokens are free. The sum hides a hot link, so there is a
// second objective: instead of the sum, what the busiest device sends to or gets from other nodes,
// and computation divided by the number of devices. So both weigh communication alike where all
// links are equally busy. (With all of the computation a link would hardly count: placements that
// compute a little less had links busier than the sum's.) Pure; any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "reconfig/moe/lite_routing.h"

namespace rewire::moe {

enum class Objective : uint8_t { kSum, kBusiestLink };

// Per token. The default is what LAER's planner takes: its profile of Mixtral-8x7B on A100
// (1.484375 us), 8,192 bytes, 216.269 and 88.9539 GB/s.
struct LayoutRates {
  uint32_t compute_ps = 1'484'375;
  uint32_t inside_ps = 37'879;   // to another device of the node
  uint32_t between_ps = 92'093;  // to another node
  bool recompute = true;         // activations are computed anew for the backward pass
};

[[nodiscard]] uint64_t LayoutCost(const RoutedTokens& routed, const LayoutRates& rates,
                                  Objective objective);

// The costs of so many tokens fit into 64 bits; else names the number.
[[nodiscard]] absl::Status CheckCost(uint64_t tokens, const LayoutRates& rates);

}  // namespace rewire::moe
