#include "shim/core/real_communicator.h"

#include <thread>

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(1);

ncclResult_t Settled(const NcclCalls& nccl, ncclComm_t comm, Time deadline) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && Now() < deadline) {
    if (nccl.CommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
    if (state == ncclInProgress) std::this_thread::sleep_for(kPoll);
  }
  return state;
}

}  // namespace

bool DestroyReal(const NcclCalls& nccl, RealCommunicator real, Time deadline) {
  ncclResult_t result = nccl.CommFinalize(real.comm);
  if (result == ncclInProgress || (result == ncclSuccess && !real.blocking)) {
    result = Settled(nccl, real.comm, deadline);
  }
  if (result == ncclSuccess) {
    result = nccl.CommDestroy(real.comm);
    if (result == ncclSuccess || result == ncclInProgress) return true;
  }
  static_cast<void>(nccl.CommAbort(real.comm));
  return false;
}

void AbortAll(const NcclCalls& nccl, std::span<const RealCommunicator> reals,
              const std::function<void()>& settle, const std::function<void()>& leave) {
  if (reals.empty() || nccl.GroupStart() != ncclSuccess) return;
  for (const bool blocking : {true, false}) {
    if (!blocking) settle();
    for (const RealCommunicator& real : reals) {
      if (real.blocking == blocking) static_cast<void>(nccl.CommAbort(real.comm));
    }
  }
  leave();
  static_cast<void>(nccl.GroupEnd());
}

}  // namespace rewire::shim
