// Ends a communicator and every activity on it. Called by the caller's thread.
#pragma once

#include "tests/simgpu/nccl/comm.h"

namespace simnccl {

// Ends the process if a thread is inside a blocking call of the communicator. NCCL waits only for
// the thread of a non-blocking call (comm->groupJob) and frees the communicator under the other.
void CheckNoneInside(ncclComm* comm);

// Waits for all activities (`aborting`: ends them first) and frees everything. The handle is
// invalid afterwards, whatever the result.
ncclResult_t Free(ncclComm* comm, bool aborting);

// Ends every operation: kernels leave, blocked calls return, the progress thread stops for good.
// The communicator can then be split or shrunk (as after a revocation) and freed.
ncclResult_t EndOperations(ncclComm* comm);

}  // namespace simnccl
