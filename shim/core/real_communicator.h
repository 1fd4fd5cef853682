// Ends real communicators: destroys one, or aborts many at once. For Retirement and Loss, on
// Rewire's own threads, with the device's context current.
#pragma once

#include <functional>
#include <span>

#include "reconfig/base/clock.h"
#include "shim/core/nccl_calls.h"

namespace rewire::shim {

struct RealCommunicator {
  ncclComm_t comm = nullptr;
  bool blocking = true;
};

// Finalizes and destroys a communicator. A non-blocking communicator is polled until it is
// finalized, or aborted at the deadline. False: the communicator had to be aborted.
bool DestroyReal(const NcclCalls& nccl, RealCommunicator real, Time deadline);

// Aborts all communicators in one group. Separate aborts deadlock, because freeing one communicator
// may wait for the kernels of another. ncclCommAbort sets the abort flags at once, so that calls
// and kernels inside return. The end of the group frees. `settle` runs before the abort of the
// non-blocking communicators and waits until no thread is inside those: ncclCommAbort frees the
// memory that ncclCommGetAsyncError reads. `leave` runs before the end of the group and waits until
// no thread is inside any of the communicators.
void AbortAll(const NcclCalls& nccl, std::span<const RealCommunicator> reals,
              const std::function<void()>& settle, const std::function<void()>& leave);

}  // namespace rewire::shim
