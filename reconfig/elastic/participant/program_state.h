// The state that a program has registered, as a transition uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/elastic/participant/program_calls.h"
#include "reconfig/state/snapshot/snapshotter.h"
#include "reconfig/state/topo/parallel_layout.h"
#include "rewire/rewire.h"

namespace rewire::elastic {

using SharedLayout = std::shared_ptr<const state::ParallelLayout>;

struct ProgramState {
  bool joining = false;
  std::vector<state::PlacedTensor> tensors;
  rewireCallbacks_t callbacks = {};
  ProgramCalls* calls = nullptr;  // must outlive the object; nullptr allows every callback
  // The world that the tensors' present parts belong to, and this member's slot in it.
  SharedLayout layout;
  uint32_t slot = 0;
};

// Returns the layout of the tensors in a world of `slots` slots. Calls the program's layout
// callback if there is one. Fails, naming the tensor or the callback, and when the program is
// ending.
absl::StatusOr<SharedLayout> LayoutOf(const ProgramState& state, uint32_t slots);

// Returns how the program divides a world of `slots` slots, without a look at the tensors.
absl::StatusOr<state::Parallel> DivisionOf(const ProgramState& state, uint32_t slots);

// Returns whether a tensor has the same elements at the same places in a slot of `from` as in a
// slot of `to`.
bool SamePart(const state::ParallelLayout& from, uint32_t from_slot,
              const state::ParallelLayout& to, uint32_t to_slot, uint32_t tensor);

// Returns the part of a tensor in a slot as the C interface numbers its elements: of the whole
// tensor or, with rewireByLayout, of the slot's memory.
state::Box PartIn(const state::ParallelLayout& layout, uint32_t slot,
                  const state::TensorShape& shape, uint32_t tensor);

}  // namespace rewire::elastic
