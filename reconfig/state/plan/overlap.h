// The parts of a tensor that two parallel layouts cut it into: the geometry of a plan, without
// members. For plan.cc. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/state/topo/parallel_layout.h"

namespace rewire::state {

// A chunk that lies in one piece of each of these classes (ParallelLayout::ClassOf).
struct Overlap {
  Chunk chunk;
  std::vector<uint32_t> from;  // every class of the old layout that has the chunk, ascending
  std::vector<uint32_t> to;    // every class of the new layout
  bool operator==(const Overlap&) const = default;
};

// The chunks of each class; empty: no slot has the class.
using ClassChunks = std::vector<std::vector<Chunk>>;
ClassChunks ChunksByClass(const ParallelLayout& layout, size_t tensor);

// Returns the overlaps of a tensor, which share no element. Together they are the chunks of `to`.
// Elements that no class of `from` has are in overlaps without such a class. elements: of the whole
// tensor.
std::vector<Overlap> OverlapsOf(const ClassChunks& from, const ClassChunks& to, uint64_t elements);

// The overlaps of all tensors of two layouts. Tensors that are divided equally share them: a model
// has few kinds of tensors and many layers. Thread-compatible.
class OverlapCache {
 public:
  // The chunks of a tensor's classes, which are equal for tensors that `from` divides equally, on
  // the same stage, and that have the same Change.
  using ChunksOf = std::function<ClassChunks(size_t tensor)>;
  // from, to: layouts of the same tensors, which outlive the cache. sources: other classes than
  // those of `from`.
  OverlapCache(const ParallelLayout& from, const ParallelLayout& to, ChunksOf sources = {})
      : from_(from), to_(to), sources_(std::move(sources)) {}

  // The reference is valid while the cache is.
  const std::vector<Overlap>& Of(size_t tensor);

 private:
  // The kind and, where it matters, the stage of the layer.
  using Key = std::pair<ParallelLayout::Kind, uint32_t>;
  [[nodiscard]] Key KeyOf(const ParallelLayout& layout, size_t tensor) const;

  const ParallelLayout& from_;
  const ParallelLayout& to_;
  const ChunksOf sources_;
  std::map<std::pair<Key, Key>, std::vector<Overlap>> overlaps_;
};

// Returns the class of each slot; kNoClass: the slot has nothing of the tensor.
inline constexpr uint32_t kNoClass = UINT32_MAX;
std::vector<uint32_t> ClassesBySlot(const ParallelLayout& layout, size_t tensor);
// Returns the slots of each class, ascending.
std::vector<std::vector<uint32_t>> SlotsByClass(const std::vector<uint32_t>& class_of,
                                                uint32_t classes);

}  // namespace rewire::state
