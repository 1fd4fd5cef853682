// Opens the core of the net plugin (librewire-net.so) from the directory of the file that NCCL
// opened. Thread-safe. The core stays loaded until the process ends.
#pragma once

#include "reconfig/abi/net_core.h"

namespace rewire::net {

// Returns null before LoadCore() has succeeded.
const NetTable* Core() noexcept;
// Opens the core. Returns ncclSystemError if the core cannot be opened, with REWIRE_DISABLE=1, or
// with a wrong setting. The first failure logs the reason, for NCCL also, with the paths.
ncclResult_t LoadCore(Logger log) noexcept;

}  // namespace rewire::net
