#include "reconfig/moe/exec/stow.h"

namespace rewire::moe {
namespace {

// What one device has given out of one kind of room.
struct Used {
  uint32_t slots = 0;
  uint32_t rows = 0;
};

}  // namespace

std::vector<Stowed> Stow(const Batch& batch, const MovePlan& plan, uint32_t slots, uint32_t rows) {
  std::vector<Used> helps(batch.devices), gives(batch.devices);
  std::vector<Stowed> stowed;
  for (const Move& move : plan) {
    const uint32_t from = batch.owner[move.expert];
    Used& in = helps[move.to];
    Used& back = gives[from];
    if (in.slots == slots || back.slots == slots || rows - in.rows < move.tokens ||
        rows - back.rows < move.tokens) {
      continue;
    }
    stowed.push_back({move, from, in.slots, in.rows, back.slots, back.rows});
    for (Used* used : {&in, &back}) {
      ++used->slots;
      used->rows += move.tokens;
    }
  }
  return stowed;
}

}  // namespace rewire::moe
