// Connects the ring or single peers when an operation first needs them. Handles travel over the
// bootstrap; listen, connect, accept and registration run on the service thread. Owned by the
// caller's thread.
#pragma once

#include <set>
#include <utility>

#include "tests/simgpu/nccl/comm.h"

namespace simnccl {

[[nodiscard]] bool RingConnected(const ncclComm* comm);
ncclResult_t ConnectRing(ncclComm* comm);

// Pairs (sending, peer); pairs that are already connected are skipped.
using PeerSet = std::set<std::pair<bool, int>>;
[[nodiscard]] bool PeersConnected(const ncclComm* comm, const PeerSet& peers);
ncclResult_t ConnectPeers(ncclComm* comm, const PeerSet& peers);

// Closes all connections and frees the communicator's device memory, on the service thread. Call
// only after the progress thread has ended.
ncclResult_t CloseConnections(ncclComm* comm);

// Allocates device memory that belongs to the communicator.
ncclResult_t AllocateFor(ncclComm* comm, size_t bytes, char** memory);

}  // namespace simnccl
