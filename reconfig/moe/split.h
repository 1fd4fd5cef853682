// LLEP for a micro-batch (least-loaded expert parallelism, arXiv 2601.17111): experts by falling
// load stay with their owner up to its capacity, the rest goes in chunks to whoever has least. No
// budget and no dynamic set: any expert may be moved. Pure; any thread.
#pragma once

#include "reconfig/moe/batch.h"

namespace rewire::moe {

struct SplitOptions {
  uint32_t gate_percent = 130;      // lambda: up to so many percent of the mean nothing is moved
  uint32_t capacity_percent = 100;  // alpha: of a device, of the mean
  uint32_t least = 1024;            // tokens of a chunk, where there are so many
};

// `batch` has passed Check().
[[nodiscard]] MovePlan SplitMoves(const Batch& batch, const SplitOptions& options);

}  // namespace rewire::moe
