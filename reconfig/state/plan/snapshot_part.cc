#include "reconfig/state/plan/snapshot_part.h"

#include <algorithm>
#include <optional>

#include "reconfig/state/plan/overlap.h"

namespace rewire::state {
namespace {

// The place of a slot among those with the same part.
struct Rank {
  uint32_t number = 0;
  uint32_t slots = 0;
};

Rank RankOf(const ParallelLayout& layout, size_t tensor, uint32_t slot) {
  const std::optional<uint32_t> own = layout.ClassOf(tensor, slot);
  if (!layout.Divides(tensor)) return {slot, layout.slots()};
  Rank rank;
  for (uint32_t other = 0; own && other < layout.slots(); ++other) {
    if (layout.ClassOf(tensor, other) != own) continue;
    if (other < slot) ++rank.number;
    ++rank.slots;
  }
  return rank;
}

}  // namespace

bool CopiesPieces(const ParallelLayout& layout) {
  for (size_t tensor = 0; tensor < layout.tensors().size(); ++tensor) {
    if (layout.tensors()[tensor].change == Change::kTransient || !layout.Divides(tensor)) continue;
    for (const auto& slots : SlotsByClass(ClassesBySlot(layout, tensor), layout.Classes(tensor))) {
      if (slots.size() == 1) return true;
    }
  }
  return false;
}

bool KeptWhole(const ParallelLayout& layout, size_t tensor, uint32_t slots) {
  return layout.tensors()[tensor].change == Change::kVolatile &&
         (slots > 1 || !layout.Divides(tensor));
}

bool KeptWholeBy(const ParallelLayout& layout, size_t tensor, uint32_t slot) {
  return KeptWhole(layout, tensor, RankOf(layout, tensor, slot).slots);
}

Box ShareOf(uint64_t elements, uint32_t rank, uint32_t slots) {
  const uint64_t share = (elements + slots - 1) / slots;
  const uint64_t begin = std::min(elements, rank * share);
  return {begin, std::min(elements, begin + share)};
}

Box SnapshotPart(const ParallelLayout& layout, size_t tensor, uint32_t slot) {
  const uint64_t elements = layout.ElementsOf(tensor, slot);
  if (layout.tensors()[tensor].change == Change::kTransient || elements == 0) return {};
  const Rank rank = RankOf(layout, tensor, slot);
  if (KeptWhole(layout, tensor, rank.slots)) return {0, elements};
  return ShareOf(elements, rank.number, rank.slots);
}

}  // namespace rewire::state
