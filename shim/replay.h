// Makes a communicator's registered buffers, windows and operators again on a new generation.
//
// Windows are collective, so they are made by the program's thread right after a swap: all ranks
// have the same ones at that operation, but not at the moments at which they build. The rest is
// made by the core's builder thread, and once more after the swap: a pending generation may be
// older than the newest registrations.
#pragma once

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

struct Generation;
struct VirtualCommunicator;

// Both skip what the generation has, and go in the order in which the application made them, which
// is the same on all ranks for windows. The first error ends it.
ncclResult_t ReplayLocal(VirtualCommunicator* comm, Generation* generation) noexcept;
// In a group NCCL makes the windows at the group's end.
ncclResult_t ReplayAll(VirtualCommunicator* comm, Generation* generation, int group_depth) noexcept;

}  // namespace rewire::shim
