#include "reconfig/state/plan/needs.h"

#include <set>
#include <utility>

#include "reconfig/state/plan/overlap.h"
#include "reconfig/state/plan/snapshot_part.h"

namespace rewire::state {
namespace {

// Returns whether some state is in this part of a slot's memory, which may have padding.
bool HasState(const ParallelLayout& layout, size_t tensor, uint32_t slot, const Box& part) {
  if (part.empty()) return false;
  return !layout.tensors()[tensor].split.padded || !layout.PiecesOf(tensor, slot, part).empty();
}

}  // namespace

StateNeeds NeedsOf(const ParallelLayout& layout) {
  std::set<StateNeed> needs;
  std::set<std::pair<ParallelLayout::Kind, uint32_t>> known;  // with the stage of the layer
  const bool copied = CopiesPieces(layout);
  for (size_t tensor = 0; tensor < layout.tensors().size(); ++tensor) {
    const Change change = layout.tensors()[tensor].change;
    if (change == Change::kTransient) continue;
    if (!known.emplace(layout.KindOf(tensor), layout.StageOfLayer(tensor)).second) continue;
    const std::vector<uint32_t> classes = ClassesBySlot(layout, tensor);
    for (std::vector<uint32_t>& slots : SlotsByClass(classes, layout.Classes(tensor))) {
      const auto count = static_cast<uint32_t>(slots.size());
      const uint64_t elements = count == 0 ? 0 : layout.ElementsOf(tensor, slots.front());
      if (count == 0 || !HasState(layout, tensor, slots.front(), {0, elements})) continue;
      StateNeed need;
      if (KeptWhole(layout, tensor, count)) {
        need.whole = slots;
      } else if (change == Change::kVolatile || copied) {
        for (uint32_t rank = 0; rank < count; ++rank) {
          const Box share = ShareOf(elements, rank, count);
          if (HasState(layout, tensor, slots[rank], share)) need.pieces.push_back(slots[rank]);
        }
      }
      need.live = std::move(slots);
      needs.insert(std::move(need));
    }
  }
  return {needs.begin(), needs.end()};
}

}  // namespace rewire::state
