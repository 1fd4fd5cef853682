#include "reconfig/state/plan/sources.h"

#include "reconfig/state/plan/snapshot_part.h"

namespace rewire::state {
namespace {

std::set<MemberId> SetOf(const std::vector<MemberId>& members) {
  return {members.begin(), members.end()};
}

}  // namespace

Sources::Sources(const SeatedLayout& from, const RestoreSources& survivors)
    : from_(from),
      survivors_(Survivors{SetOf(survivors.live), SetOf(survivors.own), SetOf(survivors.buddy),
                           CopiesPieces(*from.layout)}) {}

bool Sources::Has(size_t tensor) const {
  return !survivors_ || from_.layout->tensors()[tensor].change != Change::kTransient;
}

// The classes of the layout come first, then one class for each slot's copy.
uint32_t Sources::Classes(size_t tensor) const {
  const uint32_t classes = from_.layout->Classes(tensor);
  return survivors_ ? classes + from_.layout->slots() : classes;
}

// Returns for each class of the layout whether a survivor has it in place.
std::vector<bool> Sources::InPlace(size_t tensor, const std::vector<uint32_t>& classes) const {
  std::vector<bool> in_place(from_.layout->Classes(tensor));
  if (from_.layout->tensors()[tensor].change != Change::kConstant) return in_place;
  for (uint32_t slot = 0; slot < classes.size(); ++slot) {
    const bool live = survivors_->live.contains(from_.seats[slot].member);
    if (live && classes[slot] != kNoClass) in_place[classes[slot]] = true;
  }
  return in_place;
}

std::vector<Sources::Held> Sources::HeldOf(size_t tensor) const {
  const std::vector<uint32_t> classes = ClassesBySlot(*from_.layout, tensor);
  std::vector<Held> held(classes.size());
  if (!survivors_) {
    for (uint32_t slot = 0; slot < classes.size(); ++slot) held[slot].own = classes[slot];
    return held;
  }
  if (!Has(tensor)) return held;
  const bool constant = from_.layout->tensors()[tensor].change == Change::kConstant;
  const std::vector<bool> in_place = InPlace(tensor, classes);
  const uint32_t copies = from_.layout->Classes(tensor);
  const auto slots = static_cast<uint32_t>(classes.size());
  std::vector<uint32_t> sizes(copies);
  for (const uint32_t number : classes) {
    if (number != kNoClass) ++sizes[number];
  }
  for (uint32_t slot = 0; slot < slots; ++slot) {
    if (classes[slot] == kNoClass) continue;
    const MemberId member = from_.seats[slot].member;
    const bool live = survivors_->live.contains(member);
    if (in_place[classes[slot]]) {
      if (live) held[slot] = {classes[slot], Origin::kLive, held[slot].kept};
      continue;
    }
    if (constant && !survivors_->pieces) continue;
    const bool whole = KeptWhole(*from_.layout, tensor, sizes[classes[slot]]);
    // The copies of a class that each slot keeps whole are one class, that of the layout.
    const uint32_t number = whole ? classes[slot] : copies + slot;
    if (live || survivors_->own.contains(member)) {
      held[slot].own = number;
      held[slot].origin = Origin::kOwnSnapshot;
      continue;
    }
    const uint32_t next = (slot + 1) % slots;
    if (next != slot && !whole && survivors_->buddy.contains(from_.seats[next].member)) {
      held[next].kept = number;
    }
  }
  return held;
}

ClassChunks Sources::ChunksOf(size_t tensor) const {
  if (!survivors_) return ChunksByClass(*from_.layout, tensor);
  ClassChunks chunks(Classes(tensor));
  const uint32_t copies = from_.layout->Classes(tensor);
  const std::vector<Held> held = HeldOf(tensor);
  const auto slots = static_cast<uint32_t>(held.size());
  const auto fill = [&](uint32_t number, uint32_t owner) {
    if (number == kNoClass || !chunks[number].empty()) return;
    const Box part =
        number < copies ? Box{0, UINT64_MAX} : SnapshotPart(*from_.layout, tensor, owner);
    for (const Piece& piece : from_.layout->PiecesOf(tensor, owner, part)) {
      chunks[number].push_back(piece.chunk);
    }
  };
  for (uint32_t slot = 0; slot < slots; ++slot) {
    fill(held[slot].own, slot);
    fill(held[slot].kept, (slot + slots - 1) % slots);
  }
  return chunks;
}

}  // namespace rewire::state
