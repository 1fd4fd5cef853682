// The layout of tensors of which a program gives the division in a text for each world, beside
// tensors of which every slot has the whole. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "reconfig/state/topo/parallel_layout.h"

namespace rewire::state {

// Tensor i of the result is tensors[i]. text: a layout as docs/layouts.md describes it, for a world
// of `slots` slots, of all tensors with Division::kByLayout and no others. The others must be
// replicated. Fails with an error that names the number of slots, and the place in the text or the
// tensor.
absl::StatusOr<ParallelLayout> ProgramLayout(std::span<const TensorShape> tensors, uint32_t slots,
                                             const std::string& text);

}  // namespace rewire::state
