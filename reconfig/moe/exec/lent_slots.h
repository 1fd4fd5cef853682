// Tracks the contents of the slots of a node's helpers, as one process knows them. A helper tracks
// its own slots. An owner tracks the weights that it sent, which stay valid until the page says
// that the slot was taken again. Both sides therefore know the contents without a message, even
// after late or failed rounds. A slot changes only in a round that took it by the helper's word,
// and an owner counts only on weights that it sent. Thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/exec/stow.h"

namespace rewire::moe {

// One version of an expert's weights.
struct Weights {
  uint32_t layer = 0;
  uint32_t expert = 0;   // the expert's number in the node
  uint64_t version = 0;  // RoundInput::version; 0: equals no other version
  friend bool operator==(const Weights&, const Weights&) = default;
};

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
