// Issues the operation of a slot on a communicator. Thread-compatible.
#pragma once

#include "bench/storm/slot.h"
#include "reconfig/abi/nccl_types.h"

namespace rewire::bench {

// Returns NCCL's first error, ncclSuccess, or ncclInProgress on a non-blocking communicator. Sends
// and receives are one group. Other operations may be part of the caller's group, except for
// kPreMulSum, whose operator is destroyed at once.
[[nodiscard]] ncclResult_t Issue(const Slot& slot, ncclComm_t comm, cudaStream_t stream);

}  // namespace rewire::bench
