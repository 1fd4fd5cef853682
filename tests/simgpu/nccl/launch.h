// From the tasks of one group on one communicator to one kernel on a stream. Caller's thread.
#pragma once

#include <vector>

#include "tests/simgpu/nccl/comm.h"
#include "tests/simgpu/nccl/connect.h"
#include "tests/simgpu/nccl/task.h"

namespace simnccl {

// In the order of the calls.
struct CommWork {
  std::vector<CollectiveTask> collectives;
  std::vector<PeerTask> peers;
};

// Chooses protocols (asking the tuner).
ncclResult_t Prepare(ncclComm* comm, CommWork* work);
[[nodiscard]] PeerSet PeersOf(const CommWork& work);
[[nodiscard]] bool NeedsConnect(const ncclComm* comm, const CommWork& work);
// `peers` too, or the collectives alone (as a simulated group).
ncclResult_t Connect(ncclComm* comm, const CommWork& work, bool peers);
ncclResult_t Launch(ncclComm* comm, const CommWork& work);
// Microseconds that the work is expected to take.
[[nodiscard]] float Estimate(const ncclComm* comm, const CommWork& work);

}  // namespace simnccl
