// A hash by which members confirm that they have the same layout. Pure.
#pragma once

#include <cstdint>

#include "reconfig/state/topo/parallel_layout.h"

namespace rewire::state {

// Layouts with the same hash divide the same tensors in the same way.
uint64_t HashOf(const ParallelLayout& layout);

}  // namespace rewire::state
