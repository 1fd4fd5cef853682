// The core (librewire.so): loaded from beside the preloaded file at the first communicator, when an
// agent is there (REWIRE_SOCKET). Any thread.
#pragma once

#include "shim/core_abi.h"

namespace rewire::shim {

// nullptr: no agent, or not loaded yet: everything works, nothing is ever swapped.
const CoreTable* Core() noexcept;
// ncclSystemError when an agent is there and the core cannot be loaded: logged once, with the
// paths.
ncclResult_t LoadCore() noexcept;
// What the core gets from us.
const ShimServices* Services() noexcept;
// Tests put a core of their own in; nullptr takes it out.
void SetCore(const CoreTable* core) noexcept;
// In the child of a fork: its threads are gone.
void ForgetCore() noexcept;

}  // namespace rewire::shim
