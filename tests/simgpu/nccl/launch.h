// Converts one group's tasks on one communicator to one kernel on a stream. Called by the caller's
// thread.
#pragma once

#include <vector>

#include "tests/simgpu/nccl/comm.h"
#include "tests/simgpu/nccl/connect.h"
#include "tests/simgpu/nccl/task.h"

namespace simnccl {

// Tasks in the order of the calls.
struct CommWork {
  std::vector<CollectiveTask> collectives;
  std::vector<PeerTask> peers;
};

// Chooses protocols (asking the tuner).
ncclResult_t Prepare(ncclComm* comm, CommWork* work);
[[nodiscard]] PeerSet PeersOf(const CommWork& work);
[[nodiscard]] bool NeedsConnect(const ncclComm* comm, const CommWork& work);
// Connects for the collectives and, if `peers`, also for sends and receives (a simulated group does
// not).
ncclResult_t Connect(ncclComm* comm, const CommWork& work, bool peers);
ncclResult_t Launch(ncclComm* comm, const CommWork& work);
// Returns the expected duration of the work in microseconds.
[[nodiscard]] float Estimate(const ncclComm* comm, const CommWork& work);

}  // namespace simnccl
