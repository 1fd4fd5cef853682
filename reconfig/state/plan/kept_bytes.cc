#include "reconfig/state/plan/kept_bytes.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "reconfig/state/plan/overlap.h"

namespace rewire::state {
namespace {

using Entry = KeptBytes::Entry;

// A division with more pairs of slots for each slot goes into the types.
constexpr uint64_t kMaxPairsPerSlot = 32;

// Sorts by key and adds up the bytes of equal keys.
void Normalise(std::vector<Entry>* entries) {
  std::sort(entries->begin(), entries->end(),
            [](const Entry& a, const Entry& b) { return a.key < b.key; });
  size_t used = 0;
  for (const Entry& entry : *entries) {
    if (used > 0 && (*entries)[used - 1].key == entry.key) {
      (*entries)[used - 1].bytes += entry.bytes;
    } else {
      (*entries)[used++] = entry;
    }
  }
  entries->resize(used);
  entries->shrink_to_fit();
}

auto Find(std::span<const Entry> entries, uint32_t key) {
  const auto at =
      std::lower_bound(entries.begin(), entries.end(), key,
                       [](const Entry& entry, uint32_t wanted) { return entry.key < wanted; });
  return at == entries.end() || at->key != key ? entries.end() : at;
}

uint64_t FindOr0(std::span<const Entry> entries, uint32_t key) {
  const auto at = Find(entries, key);
  return at == entries.end() ? 0 : at->bytes;
}

// Splits types so that slots of one type have one class. Returns the number of types.
uint32_t SplitTypes(const std::vector<uint32_t>& class_of, std::vector<uint32_t>* type_of) {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> types;
  for (size_t slot = 0; slot < class_of.size(); ++slot) {
    const auto number = static_cast<uint32_t>(types.size());
    uint32_t& type = (*type_of)[slot];
    type = types.try_emplace({type, class_of[slot]}, number).first->second;
  }
  return static_cast<uint32_t>(types.size());
}

// Returns the types that have each class.
std::vector<std::vector<uint32_t>> TypesByClass(const std::vector<uint32_t>& class_of,
                                                const std::vector<uint32_t>& type_of,
                                                uint32_t classes) {
  std::vector<std::vector<uint32_t>> types(classes);
  for (size_t slot = 0; slot < class_of.size(); ++slot) {
    if (class_of[slot] != kNoClass) types[class_of[slot]].push_back(type_of[slot]);
  }
  for (std::vector<uint32_t>& list : types) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return types;
}

}  // namespace

// Tensors whose classes are on the same slots.
struct KeptBytes::Division {
  std::vector<uint32_t> old_class, next_class;  // by slot
  uint32_t old_classes = 0, next_classes = 0;
  std::unordered_map<uint64_t, uint64_t> bytes;  // by both classes
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [classes, count] : bytes) {
      visit(static_cast<uint32_t>(classes >> 32), static_cast<uint32_t>(classes), count);
    }
  }
};

KeptBytes::KeptBytes(const ParallelLayout& from, const ParallelLayout& to)
    : type_(from.slots()), next_type_(to.slots()), by_slot_(from.slots()) {
  OverlapCache overlaps(from, to);
  std::map<std::pair<std::vector<uint32_t>, std::vector<uint32_t>>, size_t> known;
  std::vector<Division> divisions;
  for (size_t tensor = 0; tensor < from.tensors().size(); ++tensor) {
    std::vector<uint32_t> old_class = ClassesBySlot(from, tensor);
    std::vector<uint32_t> next_class = ClassesBySlot(to, tensor);
    const auto [at, added] =
        known.try_emplace({std::move(old_class), std::move(next_class)}, divisions.size());
    if (added) {
      divisions.push_back({at->first.first, at->first.second, 0, 0, {}});
    }
    Division& division = divisions[at->second];
    division.old_classes = std::max(division.old_classes, from.Classes(tensor));
    division.next_classes = std::max(division.next_classes, to.Classes(tensor));
    for (const Overlap& overlap : overlaps.Of(tensor)) {
      const uint64_t bytes = overlap.chunk.elements() * from.tensors()[tensor].element_bytes;
      for (const uint64_t old : overlap.from) {
        for (const uint64_t next : overlap.to) division.bytes[old << 32 | next] += bytes;
      }
    }
  }
  std::vector<const Division*> typed;
  for (const Division& division : divisions) {
    const auto old_slots = SlotsByClass(division.old_class, division.old_classes);
    const auto next_slots = SlotsByClass(division.next_class, division.next_classes);
    uint64_t pairs = 0;
    division.ForEach([&](uint32_t old, uint32_t next, uint64_t) {
      pairs += old_slots[old].size() * next_slots[next].size();
    });
    if (pairs > kMaxPairsPerSlot * (from.slots() + to.slots())) {
      typed.push_back(&division);
      continue;
    }
    division.ForEach([&](uint32_t old, uint32_t next, uint64_t bytes) {
      for (const uint32_t slot : old_slots[old]) {
        for (const uint32_t other : next_slots[next]) by_slot_[slot].push_back({other, bytes});
      }
    });
  }
  AddTypes(typed);
  for (uint32_t old = 0; old < from.slots(); ++old) {
    Normalise(&by_slot_[old]);
    for (Entry& entry : by_slot_[old]) entry.bytes += FindOr0(ByType(old), next_type_[entry.key]);
  }
}

void KeptBytes::AddTypes(const std::vector<const Division*>& divisions) {
  uint32_t old_types = 1;
  for (const Division* division : divisions) {
    old_types = SplitTypes(division->old_class, &type_);
    next_types_ = SplitTypes(division->next_class, &next_type_);
  }
  by_type_.resize(old_types);
  for (const Division* division : divisions) {
    const auto old_types_of = TypesByClass(division->old_class, type_, division->old_classes);
    const auto next_types_of =
        TypesByClass(division->next_class, next_type_, division->next_classes);
    division->ForEach([&](uint32_t old, uint32_t next, uint64_t bytes) {
      for (const uint32_t type : old_types_of[old]) {
        for (const uint32_t other : next_types_of[next]) by_type_[type].push_back({other, bytes});
      }
    });
    for (std::vector<Entry>& entries : by_type_) Normalise(&entries);
  }
}

uint64_t KeptBytes::Of(uint32_t old, uint32_t next) const {
  const auto at = Find(BySlot(old), next);
  return at == BySlot(old).end() ? FindOr0(ByType(old), TypeOf(next)) : at->bytes;
}

}  // namespace rewire::state
