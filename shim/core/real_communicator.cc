#include "shim/core/real_communicator.h"

#include <algorithm>
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

template <typename Call>
void InOneGroup(const NcclCalls& nccl, std::span<const RealCommunicator> reals, bool blocking,
                Call call) {
  const bool any = std::any_of(reals.begin(), reals.end(), [blocking](const RealCommunicator& r) {
    return r.comm != nullptr && r.blocking == blocking;
  });
  if (!any || nccl.GroupStart() != ncclSuccess) return;
  for (const RealCommunicator& real : reals) {
    if (real.comm != nullptr && real.blocking == blocking) static_cast<void>(call(real.comm));
  }
  static_cast<void>(nccl.GroupEnd());
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

void RevokeAll(const NcclCalls& nccl, std::span<const RealCommunicator> reals) {
  if (nccl.CommRevoke == nullptr) return;
  for (const bool blocking : {true, false}) {
    InOneGroup(nccl, reals, blocking,
               [&](ncclComm_t comm) { return nccl.CommRevoke(comm, NCCL_REVOKE_DEFAULT); });
  }
}

void AbortAll(const NcclCalls& nccl, std::span<const RealCommunicator> reals) {
  for (const bool blocking : {true, false}) {
    InOneGroup(nccl, reals, blocking, [&](ncclComm_t comm) { return nccl.CommAbort(comm); });
  }
}

}  // namespace rewire::shim
