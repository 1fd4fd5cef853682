// How even a re-layout and the balancing of each micro-batch are together, beside LAER-MoE's
// re-layout alone and FEPLB's greedy alone, at no more copied bytes than the greedy needs. One
// thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "bench/moe/layer_counts.h"
#include "reconfig/moe/node_tokens.h"

namespace rewire::bench {

// A model that LAER's authors measured on four nodes of eight devices. The shape's max/mean of
// fixed experts and of LAER come out as theirs (token_analysis_backup.csv: 1.664 and 1.413 for
// e8k2, 1.729 and 1.288 for e16k4).
struct ComposedSetup {
  std::string_view name;
  LayerShape shape;
  uint32_t capacity = 0;
  moe::CopyBudget sizes;  // of what is copied; bytes is not used
};
// mixtral-8x7b-e8k2 or -e16k4, bf16.
[[nodiscard]] ComposedSetup E8K2();
[[nodiscard]] ComposedSetup E16K4();

// Of one seed's layer, means over its micro-batches: the tokens of the busiest of all devices over
// the mean.
struct Composed {
  double fixed = 0;     // experts stay where they are
  double greedy = 0;    // FEPLB's greedy in each node, on top of that
  double laer = 0;      // LAER's re-layout
  double relayout = 0;  // ours
  double ours = 0;      // and BalanceReplicas() on top of that
  // Copied for a micro-batch in all nodes together, weights and tokens; ours may copy what the
  // greedy copies in the same micro-batch.
  double greedy_bytes = 0;
  double our_bytes = 0;
  double greedy_copies = 0;  // of experts' weights
  double our_copies = 0;
};
// Each iteration is two micro-batches and is placed by the five iterations before it. The greedy
// may move every expert of a device (no more than FEPLB's four) to any that has room for eight;
// where that has a replica, no weights are counted.
[[nodiscard]] absl::StatusOr<Composed> MeasureComposed(const ComposedSetup& setup, uint64_t seed,
                                                       int iterations);

}  // namespace rewire::bench
