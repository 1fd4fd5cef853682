#include "reconfig/state/plan/overlap.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace rewire::state {

ClassChunks ChunksByClass(const ParallelLayout& layout, size_t tensor) {
  ClassChunks by_class(layout.Classes(tensor));
  std::vector<bool> known(by_class.size());
  for (uint32_t slot = 0; slot < layout.slots(); ++slot) {
    const std::optional<uint32_t> number = layout.ClassOf(tensor, slot);
    if (!number || known[*number]) continue;
    known[*number] = true;
    for (const Piece& piece : layout.PiecesOf(tensor, slot)) {
      by_class[*number].push_back(piece.chunk);
    }
  }
  return by_class;
}

namespace {

// The chunks of all classes of a layout, found by their place in one dimension.
class Index {
 public:
  explicit Index(const std::vector<std::vector<Chunk>>& by_class) {
    for (uint32_t number = 0; number < by_class.size(); ++number) {
      for (const Chunk& chunk : by_class[number]) entries_.push_back({chunk, number});
    }
    if (entries_.empty()) return;
    dim_ = MostCut();
    std::sort(entries_.begin(), entries_.end(), [this](const Entry& a, const Entry& b) {
      return std::pair(a.chunk.begin[dim_], a.number) < std::pair(b.chunk.begin[dim_], b.number);
    });
    for (const Entry& entry : entries_) longest_ = std::max(longest_, entry.chunk.size(dim_));
    disjoint_ = std::all_of(entries_.begin(), entries_.end(), [this](const Entry& entry) {
      size_t found = 0;
      Find(entry.chunk, [&found](const Chunk&, uint32_t) { ++found; });
      return found == 1;
    });
  }

  // Returns whether no two entries have an element in common.
  [[nodiscard]] bool disjoint() const { return disjoint_; }

  // Calls visit with each part that `chunk` shares with an entry, and the entry's class.
  template <typename Visit>
  void Find(const Chunk& chunk, const Visit& visit) const {
    if (entries_.empty()) return;
    const uint64_t from = chunk.begin[dim_] < longest_ ? 0 : chunk.begin[dim_] - longest_ + 1;
    auto at = std::lower_bound(
        entries_.begin(), entries_.end(), from,
        [this](const Entry& entry, uint64_t begin) { return entry.chunk.begin[dim_] < begin; });
    for (; at != entries_.end() && at->chunk.begin[dim_] < chunk.end[dim_]; ++at) {
      if (const Chunk both = Intersection(chunk, at->chunk); !both.empty()) visit(both, at->number);
    }
  }

 private:
  struct Entry {
    Chunk chunk;
    uint32_t number;
  };

  [[nodiscard]] size_t MostCut() const {
    size_t most = 0;
    size_t best = 0;
    for (size_t d = 0; d < entries_.front().chunk.dims; ++d) {
      std::set<uint64_t> begins;
      for (const Entry& entry : entries_) begins.insert(entry.chunk.begin[d]);
      if (begins.size() > most) {
        most = begins.size();
        best = d;
      }
    }
    return best;
  }

  std::vector<Entry> entries_;
  size_t dim_ = 0;
  uint64_t longest_ = 0;
  bool disjoint_ = true;
};

// Divides the parts so that each is inside `cut` or shares nothing with it, and calls visit with
// those inside.
template <typename Visit>
void Refine(const Chunk& cut, std::vector<Overlap>* parts, const Visit& visit) {
  std::vector<Overlap> refined;
  for (Overlap& part : *parts) {
    const Chunk both = Intersection(part.chunk, cut);
    if (both.empty()) {
      refined.push_back(std::move(part));
      continue;
    }
    for (const Chunk& rest : Difference(part.chunk, both)) {
      refined.push_back({rest, part.from, part.to});
    }
    part.chunk = both;
    visit(&part);
    refined.push_back(std::move(part));
  }
  *parts = std::move(refined);
}

// Returns the parts of a chunk of class `to`.
std::vector<Overlap> PartsOf(const Chunk& chunk, uint32_t to, const Index& sources) {
  std::vector<Overlap> parts;
  uint64_t covered = 0;
  sources.Find(chunk, [&](const Chunk& both, uint32_t from) {
    parts.push_back({both, {from}, {to}});
    covered += both.elements();
  });
  if (covered == chunk.elements() && sources.disjoint()) return parts;
  // No class has some elements, or several classes have the same: those of a tensor that several
  // stages have, each at another place of a buffer.
  parts = {{chunk, {}, {to}}};
  sources.Find(chunk, [&](const Chunk& both, uint32_t from) {
    Refine(both, &parts, [from](Overlap* part) { part->from.push_back(from); });
  });
  for (Overlap& part : parts) std::sort(part.from.begin(), part.from.end());
  return parts;
}

// Divides overlaps so that none share an element, and gives each all classes of `to` that have it.
std::vector<Overlap> Merged(const std::vector<Overlap>& overlaps) {
  std::vector<Overlap> merged;
  for (const Overlap& overlap : overlaps) {
    std::vector<Overlap> rest = {overlap};
    std::vector<Overlap> before = std::move(merged);
    for (const Overlap& known : before) {
      Refine(known.chunk, &rest, [](Overlap* part) { part->to.clear(); });
    }
    std::erase_if(rest, [](const Overlap& part) { return part.to.empty(); });
    Refine(overlap.chunk, &before, [&](Overlap* part) { part->to.push_back(overlap.to.front()); });
    merged = std::move(before);
    merged.insert(merged.end(), rest.begin(), rest.end());
  }
  return merged;
}

}  // namespace

std::vector<Overlap> OverlapsOf(const ClassChunks& from, const ClassChunks& to, uint64_t elements) {
  const Index sources(from);
  std::vector<Overlap> overlaps;
  uint64_t needed = 0;
  for (uint32_t number = 0; number < to.size(); ++number) {
    for (const Chunk& chunk : to[number]) {
      needed += chunk.elements();
      for (Overlap& part : PartsOf(chunk, number, sources)) overlaps.push_back(std::move(part));
    }
  }
  return needed == elements ? overlaps : Merged(overlaps);
}

OverlapCache::Key OverlapCache::KeyOf(const ParallelLayout& layout, size_t tensor) const {
  return {layout.KindOf(tensor), sources_ ? layout.StageOfLayer(tensor) : 0};
}

const std::vector<Overlap>& OverlapCache::Of(size_t tensor) {
  const auto key = std::pair(KeyOf(from_, tensor), KeyOf(to_, tensor));
  auto known = overlaps_.find(key);
  if (known == overlaps_.end()) {
    const ClassChunks from = sources_ ? sources_(tensor) : ChunksByClass(from_, tensor);
    const uint64_t elements = Chunk::Whole(to_.tensors()[tensor].shape).elements();
    known = overlaps_.emplace(key, OverlapsOf(from, ChunksByClass(to_, tensor), elements)).first;
  }
  return known->second;
}

std::vector<uint32_t> ClassesBySlot(const ParallelLayout& layout, size_t tensor) {
  std::vector<uint32_t> class_of(layout.slots());
  for (uint32_t slot = 0; slot < layout.slots(); ++slot) {
    class_of[slot] = layout.ClassOf(tensor, slot).value_or(kNoClass);
  }
  return class_of;
}

std::vector<std::vector<uint32_t>> SlotsByClass(const std::vector<uint32_t>& class_of,
                                                uint32_t classes) {
  std::vector<std::vector<uint32_t>> slots(classes);
  for (uint32_t slot = 0; slot < class_of.size(); ++slot) {
    if (class_of[slot] != kNoClass) slots[class_of[slot]].push_back(slot);
  }
  return slots;
}

}  // namespace rewire::state
