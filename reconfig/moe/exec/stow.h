// Where a plan's moves lie in the devices' buffers: which slot of the helper has the expert, which
// rows its tokens, and where what comes back lies at the owner. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "reconfig/moe/batch.h"

namespace rewire::moe {

// Of a device, at the beginning of a round.
struct Slot {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t expert = kNone;  // of the round's layer, whose weights lie there as they are now
  uint64_t taken = 0;       // the last round that used it; 0: none has
};

struct Stowed {
  Move move;
  uint32_t from = 0;  // the owner
  uint32_t slot = 0;  // of the helper's slots, and the first of its rows
  uint32_t row = 0;
  uint32_t back_slot = 0;  // the same where the owner takes it back
  uint32_t back_row = 0;
  bool held = false;  // the weights lie in the slot already
  friend bool operator==(const Stowed&, const Stowed&) = default;
};

// The moves that fit, in the plan's order; one that does not fit stays with its owner. A device has
// so many slots and rows for what it computes for others, and as many for what others compute for
// it. Weights that a helper has stay where they are; others go into the slots that have not been
// used for longest.
[[nodiscard]] std::vector<Stowed> Stow(const Batch& batch, const MovePlan& plan,
                                       const std::vector<std::vector<Slot>>& slots, uint32_t rows);
// Nobody has anything.
[[nodiscard]] std::vector<Stowed> Stow(const Batch& batch, const MovePlan& plan, uint32_t slots,
                                       uint32_t rows);

}  // namespace rewire::moe
