// Loads the core (librewire.so) from the preloaded file's folder, at the first communicator, when
// an agent exists (REWIRE_SOCKET), and reports the communicators' beginnings and ends to the core.
// For the shim's entries, on the application's threads. Thread-safe. A report holds no lock across
// a call into NCCL or the core.
#pragma once

#include "shim/preload/core_abi.h"

namespace rewire::shim {

// Returns nullptr without an agent or before the load: calls work, but nothing is swapped.
const CoreTable* Core() noexcept;
// Called before a communicator is made: checks the settings and loads the core if an agent exists.
// Returns ncclInvalidUsage when a REWIRE_* value is wrong, and ncclSystemError when the core cannot
// be loaded. Each error is logged once.
ncclResult_t ReadyToCreate() noexcept;
// Returns whether the program has called ReadyToCreate(): it makes its communicators here.
bool CreatesHere() noexcept;
// Fills in rank, ranks and device once NCCL has made the communicator, and reports a child to the
// core. Does nothing while NCCL has not finished, or when the core was told before.
void NoteIfReady(VirtualCommunicator* comm) noexcept;
// Reports the communicator's end to the core, once.
void TellClosing(VirtualCommunicator* comm, bool aborting) noexcept;
// Returns the free memory of the device, before a call in which NCCL takes memory for the
// communicator. 0: nothing is measured. The memory of a non-blocking communicator is not measured,
// because NCCL takes it on a thread of its own.
uint64_t FreeMemory(VirtualCommunicator* comm) noexcept;
// Reports to the core that the call has succeeded. free_before: the result of FreeMemory(); 0: does
// nothing.
void TellTaken(VirtualCommunicator* comm, uint64_t free_before) noexcept;
// Waits for the first generation of a joiner's communicator, which comes with a build. Call before
// a thread enters a generation for a call that needs the real communicator.
ncclResult_t AwaitFirst(VirtualCommunicator* comm) noexcept;
// Reports the pins to the core, unless the report of the creation is still to come.
void TellPinned(VirtualCommunicator* comm) noexcept;
// The services that the core receives from the preloaded library.
const ShimServices* Services() noexcept;
// Replaces the core in tests; nullptr removes the core.
void SetCore(const CoreTable* core) noexcept;
// Drops the core in the child of a fork, because the core's threads do not exist there.
void ForgetCore() noexcept;

}  // namespace rewire::shim
