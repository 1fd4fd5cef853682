// Assigns a plan's moves to the devices' buffers: the helper's slot for the expert, the rows for
// its tokens, and the owner's buffer for the results. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {

// A slot of a device at the beginning of a round.
struct Slot {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t expert = kNone;  // the expert of the round's layer whose current weights are in the slot
  uint64_t taken = 0;       // the last round that used the slot; 0: none
};

struct Stowed {
  Move move;
  uint32_t from = 0;  // the owner
  uint32_t slot = 0;  // the helper's slot and first row
  uint32_t row = 0;
  uint32_t back_slot = 0;  // the owner's slot and first row for the results
  uint32_t back_row = 0;
  bool held = false;  // the slot already has the weights
  friend bool operator==(const Stowed&, const Stowed&) = default;
};

// Returns the moves that fit, in the plan's order; a move that does not fit stays with its owner. A
// device has `slots` slots and `rows` rows for work for others, and the same number for its own
// returned results. Weights that a helper already has stay in their slot; other weights go into the
// least recently used slots.
[[nodiscard]] std::vector<Stowed> Stow(const Batch& batch, const MovePlan& plan,
                                       const std::vector<std::vector<Slot>>& slots, uint32_t rows);
// The same with empty slots on all devices.
[[nodiscard]] std::vector<Stowed> Stow(const Batch& batch, const MovePlan& plan, uint32_t slots,
                                       uint32_t rows);

}  // namespace rewire::moe
