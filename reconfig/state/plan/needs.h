// Lists for the leader, which does not know the tensors, what a version of the state needs to be
// whole. Pure.
#pragma once

#include "reconfig/state/topo/parallel_layout.h"
#include "reconfig/world/world.h"

namespace rewire::state {

// Returns each need once, in ascending order. Transient tensors need nothing.
StateNeeds NeedsOf(const ParallelLayout& layout);

}  // namespace rewire::state
