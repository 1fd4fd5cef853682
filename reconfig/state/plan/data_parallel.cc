#include "reconfig/state/plan/data_parallel.h"

namespace rewire::state {

absl::StatusOr<ParallelLayout> DataParallel(std::span<const TensorShape> tensors, uint32_t slots) {
  Parallel parallel;
  parallel.data = slots;
  std::vector<LogicalTensor> logical;
  for (const TensorShape& tensor : tensors) {
    LogicalTensor t;
    t.name = tensor.name;
    t.shape = {tensor.elements};
    t.element_bytes = tensor.element_bytes;
    t.change = tensor.change;
    t.role = tensor.division == Division::kSharded ? Role::kOptimizer : Role::kOther;
    logical.push_back(std::move(t));
  }
  return ParallelLayout::Make(std::move(parallel), {.stage = 1}, std::move(logical));
}

}  // namespace rewire::state
