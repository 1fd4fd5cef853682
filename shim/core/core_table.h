// Connects the preloaded library's calls to this process's communicators. For core_entry.cc, which
// makes the table once, at the start.
#pragma once

#include "shim/core/communicators.h"
#include "shim/preload/core_abi.h"

namespace rewire::shim {

// Returns the table that sends every later call to `communicators`, which must outlive the table.
const CoreTable* TableOf(ShimCommunicators* communicators);

}  // namespace rewire::shim
