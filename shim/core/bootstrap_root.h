// Ends NCCL's bootstrap root of a unique id that nobody needs any more. For ShimCommunicators.
//
// ncclGetUniqueId starts a detached thread with a listening socket. Both end when all ranks of the
// communicator have connected, so a build that is given up would leave them for the life of the
// process. The thread also ends, and closes the socket, when accept() fails (ncclSocketAccept and
// bootstrapRoot in the sources of 2.22.3, 2.24.3, 2.26.5, 2.27.7, 2.28.9 and 2.30.7).
#pragma once

#include <cstdint>

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

// Returns the number of the root's listening socket (its inode), which no other socket gets. 0:
// this process does not listen on the id's address.
uint64_t BootstrapRootOf(const ncclUniqueId& id);
// Ends the root if the root still exists. Call when no rank will use the id any more.
void EndBootstrapRoot(uint64_t root);

}  // namespace rewire::shim
