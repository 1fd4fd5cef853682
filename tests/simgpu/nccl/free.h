// The end of a communicator, and what ends everything that is under way on it. Caller's thread.
#pragma once

#include "tests/simgpu/nccl/comm.h"

namespace simnccl {

// Waits for what is under way (`aborting`: after ending it) and frees everything. The handle is
// gone afterwards whatever the result.
ncclResult_t Free(ncclComm* comm, bool aborting);

// Ends every operation: kernels leave, blocked calls return, the progress thread stops for good.
// The communicator can then be split or shrunk from (`after a revocation`) and freed.
ncclResult_t EndOperations(ncclComm* comm);

}  // namespace simnccl
