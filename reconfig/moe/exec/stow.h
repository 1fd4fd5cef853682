// Where a plan's moves lie in the devices' buffers: which slot of the helper has the expert, which
// rows its tokens, and where what comes back lies at the owner. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "reconfig/moe/batch.h"

namespace rewire::moe {

struct Stowed {
  Move move;
  uint32_t from = 0;  // the owner
  uint32_t slot = 0;  // of the helper's slots, and the first of its rows
  uint32_t row = 0;
  uint32_t back_slot = 0;  // the same where the owner takes it back
  uint32_t back_row = 0;
  friend bool operator==(const Stowed&, const Stowed&) = default;
};

// The moves that fit, in the plan's order; one that does not fit stays with its owner. A device has
// so many slots and rows for what it computes for others, and as many for what others compute for
// it.
[[nodiscard]] std::vector<Stowed> Stow(const Batch& batch, const MovePlan& plan, uint32_t slots,
                                       uint32_t rows);

}  // namespace rewire::moe
