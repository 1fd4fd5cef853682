// The parts of a tensor that two parallel layouts cut it into: the geometry of a plan, without
// members. For layout_plan.cc. Pure.
#pragma once

#include <cstdint>
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

// Returns the overlaps of a tensor, which share no element. Together they are the pieces of `to`.
std::vector<Overlap> OverlapsOf(const ParallelLayout& from, const ParallelLayout& to,
                                size_t tensor);

}  // namespace rewire::state
