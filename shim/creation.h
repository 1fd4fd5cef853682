// What every way of making a communicator has in common. The application's threads; no lock is held
// across a call into NCCL or the core.
#pragma once

#include "shim/virtual_communicator.h"

namespace rewire::shim {

// Before a communicator is made: settings right, core loaded when there is an agent.
ncclResult_t ReadyToCreate() noexcept;
// Copies the application's config (may be nullptr) into the recipe; a child without one takes its
// parent's.
void KeepConfig(const ncclConfig_t* config, const Recipe* parent, Recipe* recipe);
// When NCCL has finished making the communicator: fills in rank, ranks and device, and tells the
// core of a child. Does nothing when it is not finished, or was noted before.
void NoteIfReady(VirtualCommunicator* comm) noexcept;
// Tells the core that the communicator is about to go, once.
void TellClosing(VirtualCommunicator* comm, bool aborting) noexcept;

}  // namespace rewire::shim
