#include "shim/core/ranks_here.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(1);

}  // namespace

bool IsLost(Chain* chain) {
  MutexLock lock(&chain->mutex);
  return chain->lost;
}

absl::Status Settle(const NcclCalls& nccl, BuildTask* task, ncclComm_t comm) {
  for (;;) {
    REWIRE_RETURN_IF_ERROR(task->Stopped());
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = nccl.CommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclSuccess) return absl::OkStatus();
    if (state != ncclInProgress) {
      return absl::InternalError(
          absl::StrCat("settle a non-blocking communicator: ", nccl.Describe(state)));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace rewire::shim
