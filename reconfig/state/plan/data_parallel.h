// The layout of tensors that a program has registered one by one: data parallelism over all slots,
// in which each slot has the whole of a replicated tensor and an equal interval of a sharded one
// (rewireShard()). Pure.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "reconfig/state/topo/layout.h"
#include "reconfig/state/topo/parallel_layout.h"

namespace rewire::state {

// Returns a tensor of which each slot has the whole.
LogicalTensor WholeOnEachSlot(const TensorShape& tensor);

// tensors: replicated or sharded. Fails, naming the tensor, for one that no layout may have. slots:
// at least 1.
absl::StatusOr<ParallelLayout> DataParallel(std::span<const TensorShape> tensors, uint32_t slots);

}  // namespace rewire::state
