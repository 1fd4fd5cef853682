// The part of its memory that a slot copies after each update (reconfig/state/snapshot). The slots
// that have the same part of a constant tensor share the work: their copies together make one.
// Pure.
#pragma once

#include <cstdint>

#include "reconfig/state/topo/parallel_layout.h"

namespace rewire::state {

// Returns whether constant tensors are copied: only when some slot alone has a part of a tensor
// that the layout divides. Otherwise another slot has everything.
bool CopiesPieces(const ParallelLayout& layout);

// Returns whether a slot copies the whole of its part and sends the copy to no other member: the
// tensor is volatile, and other slots have the same part. slots: that have this part.
bool KeptWhole(const ParallelLayout& layout, size_t tensor, uint32_t slots);
bool KeptWholeBy(const ParallelLayout& layout, size_t tensor, uint32_t slot);

// Returns the share of the slot with this rank among `slots` slots with the same part.
Box ShareOf(uint64_t elements, uint32_t rank, uint32_t slots);

// Returns the elements of the slot's memory that are copied, if the tensor is; empty for a
// transient tensor.
Box SnapshotPart(const ParallelLayout& layout, size_t tensor, uint32_t slot);

}  // namespace rewire::state
