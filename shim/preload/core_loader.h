// Loads the core (librewire.so) from the preloaded file's folder, at the first communicator, when
// an agent exists (REWIRE_SOCKET). For the shim's entries. Thread-safe.
#pragma once

#include "shim/preload/core_abi.h"

namespace rewire::shim {

// Returns nullptr without an agent or before the load: calls work, but nothing is swapped.
const CoreTable* Core() noexcept;
// Returns ncclSystemError when an agent exists and the core cannot be loaded. The error is logged
// once, with the paths.
ncclResult_t LoadCore() noexcept;
// The services that the core receives from the preloaded library.
const ShimServices* Services() noexcept;
// Replaces the core in tests; nullptr removes the core.
void SetCore(const CoreTable* core) noexcept;
// Drops the core in the child of a fork, because the core's threads do not exist there.
void ForgetCore() noexcept;

}  // namespace rewire::shim
