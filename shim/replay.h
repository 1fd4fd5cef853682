// Makes a communicator's registered buffers, windows and operators again on a generation that is
// not published yet. Called by the core, from its builder thread.
#pragma once

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

struct Generation;
struct VirtualCommunicator;

// In the order in which the application made them, which is the same on all ranks for windows. The
// first error ends it.
ncclResult_t ReplayRegistrations(VirtualCommunicator* comm, Generation* generation) noexcept;

}  // namespace rewire::shim
