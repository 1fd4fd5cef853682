#include "tests/simgpu/nccl/connection.h"

#include "tests/simgpu/nccl/error.h"

namespace simnccl {

ncclResult_t Connection::Progress(bool* moved) {
  while (posted_ < queued_) {
    const int slot = static_cast<int>(posted_ % kSlots);
    void* request = nullptr;
    SIMNCCL_TRY(sending_ ? net_->Isend(comm_, Slot(posted_), size_[slot], 0, mh_, &request)
                         : net_->Irecv(comm_, Slot(posted_), size_[slot], 0, mh_, &request));
    if (request == nullptr) break;
    request_[slot] = request;
    ++posted_;
    *moved = true;
  }
  while (completed_ < posted_) {
    const int slot = static_cast<int>(completed_ % kSlots);
    int done = 0;
    int bytes = 0;
    SIMNCCL_TRY(net_->Test(request_[slot], &done, &bytes));
    if (done == 0) break;
    if (!sending_ && static_cast<size_t>(bytes) != size_[slot]) {
      return Fail(ncclInternalError, "receive from a peer: bytes=%d: must be %zu", bytes,
                  size_[slot]);
    }
    ++completed_;
    if (sending_) released_ = completed_;
    *moved = true;
  }
  return ncclSuccess;
}

}  // namespace simnccl
