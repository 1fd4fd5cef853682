// Connects what operations need, at their first use, on the caller's thread: the ring, or single
// peers. Handles travel over the bootstrap; listen, connect, accept and registration run on the
// service thread. Caller's thread only.
#pragma once

#include <set>
#include <utility>

#include "tests/simgpu/nccl/comm.h"

namespace simnccl {

[[nodiscard]] bool RingConnected(const ncclComm* comm);
ncclResult_t ConnectRing(ncclComm* comm);

// (sending, peer) pairs; those that are connected already are passed over.
using PeerSet = std::set<std::pair<bool, int>>;
[[nodiscard]] bool PeersConnected(const ncclComm* comm, const PeerSet& peers);
ncclResult_t ConnectPeers(ncclComm* comm, const PeerSet& peers);

// Closes all connections and frees the communicator's device memory, on the service thread. The
// progress thread has ended.
ncclResult_t CloseConnections(ncclComm* comm);

// Device memory that belongs to the communicator.
ncclResult_t AllocateFor(ncclComm* comm, size_t bytes, char** memory);

}  // namespace simnccl
