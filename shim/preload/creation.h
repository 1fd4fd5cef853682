// The steps that all functions for making a communicator share. For shim/preload/entries_*.cc, on
// the application's threads. No lock is held across a call into NCCL or the core.
#pragma once

#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

// Called before a communicator is made: checks the settings and loads the core if an agent exists.
ncclResult_t ReadyToCreate() noexcept;
// Copies the application's config (may be nullptr) into the recipe. A child without a config takes
// the config of its parent.
void KeepConfig(const ncclConfig_t* config, const Recipe* parent, Recipe* recipe);
// Fills in rank, ranks and device once NCCL has made the communicator, and reports a child to the
// core. Does nothing while NCCL has not finished, or when the core was told before.
void NoteIfReady(VirtualCommunicator* comm) noexcept;
// Reports the communicator's end to the core, once.
void TellClosing(VirtualCommunicator* comm, bool aborting) noexcept;

}  // namespace rewire::shim
