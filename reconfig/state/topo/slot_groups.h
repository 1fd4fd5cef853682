// The groups of slots along axes of a parallel layout, such as its data-parallel groups.
//
// Slots are in one group when they have the same coordinates on all other axes, as in
// Megatron-Core's RankGenerator. A spare slot is alone in its group. Immutable, and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/state/topo/parallel.h"

namespace rewire::state {

class SlotGroups {
 public:
  // parallel: must be valid. axes: names of AxesOf() or of ExpertAxesOf(), each at most once,
  // joined by "-" in any order. Fails with an error that names the field, its value and what it
  // must be.
  static absl::StatusOr<SlotGroups> Along(const Parallel& parallel, const std::string& axes);

  // Returns the slots of the slot's group in ascending order. The slot's rank in the group is its
  // index. The time depends on the size of this group alone. Fails if slot is not below
  // parallel.slots().
  [[nodiscard]] absl::StatusOr<std::vector<uint32_t>> GroupOf(uint32_t slot) const;

 private:
  SlotGroups(const Parallel& parallel, std::vector<Axis> axes);

  uint32_t slots_;
  uint32_t working_;
  std::vector<Axis> axes_;  // of the groups, in ascending order of their strides
};

}  // namespace rewire::state
