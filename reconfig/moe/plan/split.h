// LLEP for a micro-batch (least-loaded expert parallelism, arXiv 2601.17111, and its authors'
// code). Experts are assigned by falling tokens. The owner keeps an expert's tokens while its
// effective load has room, and the rest goes in chunks to the device with the least effective load.
// The effective load of a device is the sum of its assigned tokens and its pending native tokens,
// those of its own experts that come later in the order. There is no budget, and any expert may
// move. Pure; thread-safe.
#pragma once

#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {

struct SplitOptions {
  uint32_t gate_percent = 130;      // lambda: nothing moves while max / mean is below this
  uint32_t capacity_percent = 100;  // alpha: capacity of a device in percent of the mean
  uint32_t least = 1024;            // tokens of a chunk, unless the chunk is the expert's rest
};

// `batch` has passed Check(). As in the paper, a rest that fits no device goes to the device with
// the least effective load. This load can then exceed the device's capacity.
[[nodiscard]] MovePlan SplitMoves(const Batch& batch, const SplitOptions& options);

}  // namespace rewire::moe
