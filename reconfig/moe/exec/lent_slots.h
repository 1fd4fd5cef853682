// The slots of a node's devices for others' experts: what they hold, and which moves of a plan get
// which slots, rows and buffers. Values and LentSlots are thread-compatible. PlaceMoves() is pure
// and thread-safe: every process of a node assigns alike.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {

// A slot of a device at the beginning of a round.
struct Slot {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t expert = kNone;  // the expert of the round's layer whose current weights are in the slot
  uint64_t taken = 0;       // the last round that used the slot; 0: none
};

struct PlacedMove {
  Move move;
  uint32_t from = 0;  // the owner
  uint32_t slot = 0;  // the helper's slot and first row
  uint32_t row = 0;
  uint32_t back_slot = 0;  // the owner's slot and first row for the results
  uint32_t back_row = 0;
  bool held = false;  // the slot already has the weights
  friend bool operator==(const PlacedMove&, const PlacedMove&) = default;
};

// Returns the moves that fit, in the plan's order; a move that does not fit stays with its owner. A
// device has `slots` slots and `rows` rows for work for others, and the same number for its own
// returned results. Weights that a helper already has stay in their slot; other weights go into the
// least recently used slots.
[[nodiscard]] std::vector<PlacedMove> PlaceMoves(const Batch& batch, const MovePlan& plan,
                                                 const std::vector<std::vector<Slot>>& slots,
                                                 uint32_t rows);
// The same with empty slots on all devices.
[[nodiscard]] std::vector<PlacedMove> PlaceMoves(const Batch& batch, const MovePlan& plan,
                                                 uint32_t slots, uint32_t rows);

// One version of an expert's weights.
struct Weights {
  uint32_t layer = 0;
  uint32_t expert = 0;   // the expert's number in the node
  uint64_t version = 0;  // RoundInput::version; 0: equals no other version
  friend bool operator==(const Weights&, const Weights&) = default;
};

// Tracks the contents of the slots of one helper, as one process knows them. A helper tracks its
// own slots. An owner tracks the weights that it sent, which stay valid until the page says that
// the slot was taken again. Both sides therefore know the contents without a message, even after
// late or failed rounds. A slot changes only in a round that took it by the helper's word, and an
// owner counts only on weights that it sent. Thread-compatible.
class LentSlots {
 public:
  // Records that weights came into the slot in the round, or were used there in the round.
  void Put(uint32_t slot, const Weights& weights, uint64_t round) {
    slots_[slot] = {weights, round};
  }
  void Clear(uint32_t slot) { slots_[slot] = {}; }
  // Returns whether the weights are in the slot if the slot was taken last in round `taken`.
  [[nodiscard]] bool Has(uint32_t slot, const Weights& weights, uint64_t taken) const {
    const auto& [lie, round] = slots_[slot];
    return weights.version != 0 && lie == weights && round != 0 && round == taken;
  }
  // Returns the slots as a plan for the layer needs them.
  [[nodiscard]] std::vector<Slot> Of(uint32_t layer, uint64_t version, uint32_t slots) const {
    std::vector<Slot> out(slots);
    for (uint32_t i = 0; i < slots; ++i) {
      const auto& [lie, round] = slots_[i];
      out[i].taken = round;
      if (version != 0 && round != 0 && lie.layer == layer && lie.version == version) {
        out[i].expert = lie.expert;
      }
    }
    return out;
  }

 private:
  struct Entry {
    Weights weights;
    uint64_t round = 0;
  };
  std::array<Entry, kMaxSlots> slots_;
};

}  // namespace rewire::moe
