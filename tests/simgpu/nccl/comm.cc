#include "tests/simgpu/nccl/comm.h"

#include <cstdio>
#include <cstdlib>

#include "tests/simgpu/nccl/api.h"
#include "tests/simgpu/nccl/env.h"
#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/tuner.h"

ncclComm::ncclComm()
    // Each communicator has its own operators, which are not valid on another communicator.
    : next_operator(0x1000 +
                    static_cast<int>((reinterpret_cast<uintptr_t>(this) >> 4) & 0xfffff) * 64) {}

ncclComm::~ncclComm() { magic = 0; }

namespace simnccl {

void UnderWay::Add() {
  rewire::MutexLock lock(&mutex_);
  ++count_;
}

void UnderWay::Remove() {
  rewire::MutexLock lock(&mutex_);
  if (--count_ == 0) cond_.NotifyAll();
}

bool UnderWay::None() {
  rewire::MutexLock lock(&mutex_);
  return count_ == 0;
}

bool UnderWay::WaitNone(rewire::Time deadline) {
  rewire::MutexLock lock(&mutex_);
  while (count_ > 0) {
    if (!cond_.WaitUntil(&mutex_, deadline) && count_ > 0) return false;
  }
  return true;
}

void AsyncRun::Join() {
  rewire::MutexLock lock(&mutex);
  if (joined) return;
  joined = true;
  thread.join();
}

AsyncRun::~AsyncRun() { Join(); }

Patience PatienceOf(const ncclComm* comm) {
  int64_t ms = 0;
  // The variable was checked when the communicator was made.
  if (EnvInt("SIMNCCL_TIMEOUT_MS", 600'000, 1, 86'400'000, &ms) != ncclSuccess) ms = 600'000;
  return {rewire::Now() + rewire::milliseconds(ms), comm->abort.get()};
}

ncclResult_t CheckComm(const ncclComm* comm, const char* call, const char* argument) {
  if (comm == nullptr) {
    return Fail(ncclInvalidArgument, "%s : %s argument is NULL", call, argument);
  }
  if (comm->magic == ncclComm::kMagic) return ncclSuccess;
  return Fail(ncclInvalidArgument, "%s : corrupted comm object detected", call);
}

void CompleteRun(ncclComm* comm) {
  std::shared_ptr<AsyncRun> run;
  {
    rewire::MutexLock lock(&comm->mutex);
    run = comm->run;
  }
  if (run == nullptr) return;
  if (comm->completing.exchange(true)) {
    fprintf(stderr,
            "simnccl: two threads call one non-blocking communicator at the same time: NCCL would "
            "free its launch twice\n");
    abort();
  }
  run->Join();
  {
    rewire::MutexLock lock(&comm->mutex);
    if (comm->run == run) comm->run.reset();
  }
  comm->completing.store(false);
}

ncclResult_t CheckReady(ncclComm* comm) {
  ncclResult_t state = ncclSuccess;
  SIMNCCL_TRY(ncclCommGetAsyncError(comm, &state));
  if (state != ncclInProgress) return state;
  return Fail(ncclInvalidArgument,
              "Attempt to use communicator before the previous operation returned ncclSuccess");
}

}  // namespace simnccl
