// The preloaded library's calls, led to this process's communicators. Made once, at the start.
#pragma once

#include "shim/core/communicators.h"
#include "shim/core_abi.h"

namespace rewire::shim {

// The table through which every later call goes to `communicators`, which outlives it.
const CoreTable* TableOf(ShimCommunicators* communicators);

}  // namespace rewire::shim
