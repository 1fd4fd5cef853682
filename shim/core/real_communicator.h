// Ends real communicators: destroys one, or aborts many at once. On the core's own threads, with
// the device's context current.
#pragma once

#include <span>

#include "reconfig/base/clock.h"
#include "shim/core/nccl_calls.h"

namespace rewire::shim {

struct RealCommunicator {
  ncclComm_t comm = nullptr;
  bool blocking = true;
};

// Finalizes and destroys. A non-blocking one is polled until it is finalized, or aborted at the
// deadline. False: it had to be aborted.
bool DestroyReal(const NcclCalls& nccl, RealCommunicator real, Time deadline);

// Revokes (where the library can: that only sets flags, so that calls blocked inside return).
void RevokeAll(const NcclCalls& nccl, std::span<const RealCommunicator> reals);
// Aborts all in one group: one after the other deadlocks, because freeing one may wait for the
// kernels of another. Blocking and non-blocking ones may not share a group.
void AbortAll(const NcclCalls& nccl, std::span<const RealCommunicator> reals);

}  // namespace rewire::shim
