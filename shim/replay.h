// Makes a communicator's registered buffers, windows and operators again on a new generation.
// Called by the core from its builder thread, and once more by the program's thread right after a
// swap: a pending generation may be older than the newest registrations.
#pragma once

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

struct Generation;
struct VirtualCommunicator;

// Skips those that the generation has. In the order in which the application made them, which is
// the same on all ranks for windows. The first error ends it.
ncclResult_t ReplayRegistrations(VirtualCommunicator* comm, Generation* generation) noexcept;

}  // namespace rewire::shim
