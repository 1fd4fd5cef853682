// Ends a communicator while a thread is inside and may not return by itself: in a blocking
// ncclCommInitRankConfig whose peer never comes, or in a first connection.
//
// NCCL's rules (read in the sources of 2.22.3 to 2.30.7):
// - ncclCommAbort sets the abort flags, waits only for the background thread of a *non-blocking*
//   call (comm->groupJob), and then frees. On a blocking communicator ncclCommAbort frees under a
//   thread that is inside: a double free, or a crash of the other thread.
// - Inside a group, ncclCommAbort sets the flags at once, and the end of the group frees. All waits
//   of an initialisation check the flags. So this file opens a group, aborts in the group, waits
//   until the thread has left, and only then ends the group.
// - ncclCommInitRank without a config frees the communicator when the call fails;
//   ncclCommInitRankConfig leaves the communicator to the caller. Only the latter may be
//   interrupted.
// - Nothing else ends an initialisation that waits for a peer which has not reached the bootstrap's
//   root: each rank waits in accept() on a socket of its own, without a timeout, and keeps a core
//   busy. The death of a peer breaks the wait only after the peer has connected.
//
// With any other version of NCCL no communicator is aborted under a thread: the thread stays inside
// until NCCL returns, and the communicator is aborted then.
//
// Each interruption has a detached thread, which owns all that it uses. Thread-safe.
#pragma once

#include <memory>

#include "shim/core/chain.h"
#include "shim/core/device.h"
#include "shim/core/nccl_calls.h"
#include "shim/preload/core_abi.h"

namespace rewire::shim {

// Takes the link over, ends its real communicator, and frees both after every thread has left the
// generation (Generation::fixed, or a slot). Returns at once. services and device must outlive the
// process's use of NCCL.
void InterruptAndFree(const NcclCalls& nccl, const ShimServices* services, Device* device,
                      std::unique_ptr<Link> link);

}  // namespace rewire::shim
