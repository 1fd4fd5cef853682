// The core of the net plugin (librewire-net.so), opened from beside the file that NCCL opened. Any
// thread; stays for the life of the process.
#pragma once

#include "net_plugin/core_abi.h"

namespace rewire::net {

// Null before LoadCore() has succeeded.
const NetTable* Core() noexcept;
// ncclSystemError when there is none to open: said once, with the paths. With
// REWIRE_DISABLE=1 or a wrong setting NCCL is told that this plugin cannot serve.
ncclResult_t LoadCore(Logger log) noexcept;

}  // namespace rewire::net
