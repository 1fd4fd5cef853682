// Measures the balance of a re-layout combined with the balancing of each micro-batch. LAER-MoE's
// re-layout alone and FEPLB's greedy alone are measured beside it. The combination copies no more
// bytes than the greedy. Thread-compatible.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "bench/moe/layer_counts.h"
#include "reconfig/moe/plan/node_tokens.h"

namespace rewire::bench {

// A model that LAER's authors measured on four nodes of eight devices. The shape's max/mean of
// fixed experts and of LAER match the authors' (token_analysis_backup.csv: 1.664 and 1.413 for
// e8k2, 1.729 and 1.288 for e16k4).
struct ComposedSetup {
  std::string_view name;
  LayerShape shape;
  uint32_t capacity = 0;
  moe::CopyBudget sizes;  // sizes of the copies; `bytes` is not used
};
// mixtral-8x7b-e8k2 and -e16k4 in bf16.
[[nodiscard]] ComposedSetup E8K2();
[[nodiscard]] ComposedSetup E16K4();

// Results of one seed's layer, as means over its micro-batches: the busiest device's tokens over
// the mean of all devices.
struct Composed {
  double fixed = 0;     // experts stay in place
  double greedy = 0;    // FEPLB's greedy in each node, with fixed experts
  double laer = 0;      // LAER's re-layout
  double relayout = 0;  // PlanRelayout()
  double ours = 0;      // PlanRelayout() and then BalanceReplicas()
  // Bytes of weights and tokens copied for a micro-batch in all nodes together. `ours` may copy as
  // many bytes as the greedy copies in the same micro-batch.
  double greedy_bytes = 0;
  double our_bytes = 0;
  double greedy_copies = 0;  // copies of experts' weights
  double our_copies = 0;
};
// Each iteration is two micro-batches and is placed by the five iterations before. The greedy may
// move every expert of a device (at most FEPLB's four) to any device, which has room for eight. A
// move to a device with a replica counts no weights.
[[nodiscard]] absl::StatusOr<Composed> MeasureComposed(const ComposedSetup& setup, uint64_t seed,
                                                       int iterations);

}  // namespace rewire::bench
