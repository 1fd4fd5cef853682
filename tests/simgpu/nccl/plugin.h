// Chooses a communicator's network and tuner: plugins by NCCL's environment variables, else the
// built-in sockets and no tuner. Called by the thread that makes or frees a communicator.
#pragma once

#include "tests/simgpu/nccl/comm.h"

namespace simnccl {

ncclResult_t AssignNet(ncclComm* comm);
void ReleaseNet(ncclComm* comm);
ncclResult_t AssignTuner(ncclComm* comm, int nodes);

}  // namespace simnccl
