#include "reconfig/moe/exec/lent_slots.h"

#include <algorithm>
#include <numeric>

namespace rewire::moe {
namespace {

// The slots and rows that one device has assigned in one kind of buffer.
struct Used {
  uint32_t slots = 0;
  uint32_t rows = 0;
};

void ChooseSlots(const std::vector<std::vector<Slot>>& slots, std::vector<PlacedMove>* placed) {
  for (uint32_t device = 0; device < slots.size(); ++device) {
    const std::vector<Slot>& here = slots[device];
    std::vector<uint32_t> free(here.size());  // the least recently used slot first
    std::iota(free.begin(), free.end(), 0);
    std::stable_sort(free.begin(), free.end(),
                     [&](uint32_t a, uint32_t b) { return here[a].taken < here[b].taken; });
    for (PlacedMove& s : *placed) {
      if (s.move.to != device) continue;
      const auto slot = std::find_if(free.begin(), free.end(),
                                     [&](uint32_t f) { return here[f].expert == s.move.expert; });
      if (slot == free.end()) continue;
      s.held = true;
      s.slot = *slot;
      free.erase(slot);
    }
    auto next = free.begin();
    for (PlacedMove& s : *placed) {
      if (s.move.to == device && !s.held) s.slot = *next++;
    }
  }
}

}  // namespace

std::vector<PlacedMove> PlaceMoves(const Batch& batch, const MovePlan& plan,
                                   const std::vector<std::vector<Slot>>& slots, uint32_t rows) {
  std::vector<Used> helps(batch.devices), gives(batch.devices);
  std::vector<PlacedMove> placed;
  for (const Move& move : plan) {
    const uint32_t from = batch.owner[move.expert];
    Used& in = helps[move.to];
    Used& back = gives[from];
    if (in.slots == slots[move.to].size() || back.slots == slots[from].size() ||
        rows - in.rows < move.tokens || rows - back.rows < move.tokens) {
      continue;
    }
    placed.push_back({move, from, 0, in.rows, back.slots, back.rows, false});
    for (Used* used : {&in, &back}) {
      ++used->slots;
      used->rows += move.tokens;
    }
  }
  ChooseSlots(slots, &placed);
  return placed;
}

std::vector<PlacedMove> PlaceMoves(const Batch& batch, const MovePlan& plan, uint32_t slots,
                                   uint32_t rows) {
  return PlaceMoves(batch, plan, {batch.devices, std::vector<Slot>(slots)}, rows);
}

}  // namespace rewire::moe
