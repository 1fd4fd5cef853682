// What lies in the slots of a node's helpers, as one process knows it. As a helper: what its own
// slots hold. As an owner: what it has sent to others, which lies there for as long as the page
// does not say that the slot was taken since. So both sides know without a message, and who was
// late or failed in a round does not matter: a round changes a slot only where it was taken, by the
// helper's word, and what an owner has not sent it does not count on. Pure; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/exec/stow.h"

namespace rewire::moe {

// An expert's weights at some time.
struct Weights {
  uint32_t layer = 0;
  uint32_t expert = 0;   // of the node
  uint64_t version = 0;  // RoundInput::version; 0: like no others
  friend bool operator==(const Weights&, const Weights&) = default;
};

class LentSlots {
 public:
  // Weights came into the slot in the round, or were there already and used.
  void Put(uint32_t slot, const Weights& weights, uint64_t round) {
    slots_[slot] = {weights, round};
  }
  void Clear(uint32_t slot) { slots_[slot] = {}; }
  // Whether they lie there, if the slot was taken last in that round.
  [[nodiscard]] bool Has(uint32_t slot, const Weights& weights, uint64_t taken) const {
    const auto& [lie, round] = slots_[slot];
    return weights.version != 0 && lie == weights && round != 0 && round == taken;
  }
  // As a plan for the layer needs it.
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
