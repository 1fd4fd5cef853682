// Makes communicators from unique ids or as children of another communicator. `New` and `Adopt...`
// run on the caller's thread and check arguments; `Init` runs as a group's job.
#pragma once

#include <functional>
#include <vector>

#include "tests/simgpu/nccl/comm.h"

namespace simnccl {

// Makes a communicator that is not connected yet, on the caller's current device.
ncclResult_t NewComm(int nranks, int rank, const Config& config, ncclComm** comm);
// Makes the communicator on the primary context of a given device.
ncclResult_t NewCommOn(int device, int nranks, int rank, const Config& config, ncclComm** comm);

// Connects the communicator: `join` initialises the bootstrap.
ncclResult_t InitComm(ncclComm* comm,
                      const std::function<ncclResult_t(Bootstrap*, const Patience&)>& join);

}  // namespace simnccl
