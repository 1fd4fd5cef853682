// Replays a communicator's registered buffers, windows and operators on a new generation.
//
// Windows are collective. The program's thread therefore makes them right after a swap: all ranks
// have the same windows at that operation, but not at the moments of their builds. The core's
// builder thread replays the rest. The program's thread replays the rest again after the swap,
// because a pending generation may be older than the newest registrations.
#pragma once

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

struct Generation;
struct VirtualCommunicator;

// Both functions skip what the generation has already, and follow the application's order, which is
// the same on all ranks for windows. The first error ends the replay.
ncclResult_t ReplayLocal(VirtualCommunicator* comm, Generation* generation) noexcept;
// In a group, NCCL makes the windows at the group's end.
ncclResult_t ReplayAll(VirtualCommunicator* comm, Generation* generation, int group_depth) noexcept;

}  // namespace rewire::shim
