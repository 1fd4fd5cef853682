#include "reconfig/state/plan/data_parallel.h"

namespace rewire::state {

LogicalTensor WholeOnEachSlot(const TensorShape& tensor) {
  LogicalTensor whole;
  whole.name = tensor.name;
  whole.shape = {tensor.elements};
  whole.element_bytes = tensor.element_bytes;
  whole.change = tensor.change;
  whole.role = Role::kOther;
  whole.stages = Stages::kEverySlot;
  return whole;
}

absl::StatusOr<ParallelLayout> DataParallel(std::span<const TensorShape> tensors, uint32_t slots) {
  Parallel parallel;
  parallel.data = slots;
  std::vector<LogicalTensor> logical;
  for (const TensorShape& tensor : tensors) {
    logical.push_back(WholeOnEachSlot(tensor));
    if (tensor.division != Division::kSharded) continue;
    logical.back().role = Role::kOptimizer;
    logical.back().stages = Stages::kAll;
  }
  return ParallelLayout::Make(std::move(parallel), {.stage = 1}, std::move(logical));
}

}  // namespace rewire::state
