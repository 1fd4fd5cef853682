#include "tests/simgpu/nccl/free.h"

#include <cstdio>
#include <cstdlib>

#include "tests/simgpu/nccl/api.h"
#include "tests/simgpu/nccl/connect.h"
#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/plugin.h"
#include "tests/simgpu/nccl/runtime.h"
#include "tests/simgpu/nccl/tuner.h"

namespace simnccl {
namespace {

// A kernel that is queued after an endless kernel cannot end. NCCL waits for such a kernel without
// a limit; this library gives up after this time.
constexpr rewire::Duration kPatience = rewire::seconds(600);

void JoinRun(ncclComm* comm) {
  std::shared_ptr<AsyncRun> run;
  {
    rewire::MutexLock lock(&comm->mutex);
    run = comm->run;
  }
  if (run != nullptr) run->Join();
}

}  // namespace

ncclResult_t EndOperations(ncclComm* comm) {
  comm->abort->Set();
  const rewire::Time deadline = rewire::Now() + kPatience;
  if (!comm->callers.WaitNone(deadline) || !comm->launched->WaitNone(deadline)) {
    return Fail(ncclInternalError, "operations did not end after the abort");
  }
  JoinRun(comm);
  comm->stopped.store(true);
  comm->progress->Stop();
  comm->abort->Clear();
  return ncclSuccess;
}

void CheckNoneInside(ncclComm* comm) {
  if (!comm->config.blocking || comm->callers.None()) return;
  (void)std::fprintf(stderr, "simnccl: rank %d: a communicator was freed during a thread's call\n",
                     comm->rank);
  std::abort();
}

ncclResult_t Free(ncclComm* comm, bool aborting) {
  const RuntimeUse use;
  if (aborting) comm->abort->Set();
  CheckNoneInside(comm);
  const rewire::Time deadline = rewire::Now() + kPatience;
  JoinRun(comm);
  if (!comm->callers.WaitNone(deadline) || !comm->launched->WaitNone(deadline)) {
    return Fail(ncclInternalError, "a communicator is not freed: its operations do not end");
  }
  std::set<Registration*> registrations;
  std::set<ncclWindow_t> windows;
  {
    rewire::MutexLock lock(&comm->mutex);
    registrations = comm->registrations;
    windows = comm->windows;
  }
  // Calls the exported names, as NCCL does: an interposer sees the real handle.
  for (Registration* r : registrations) (void)ncclCommDeregister(comm, r);
  for (const ncclWindow_t w : windows) (void)ncclCommWindowDeregister(comm, w);

  if (comm->progress != nullptr) comm->progress->Stop();
  ncclResult_t result = ncclSuccess;
  if (comm->service != nullptr) result = CloseConnections(comm);
  comm->tuner.reset();
  ReleaseNet(comm);
  comm->service.reset();
  if (comm->last_event != nullptr) comm->driver->EventDestroy(comm->last_event);
  if (comm->retained_primary) comm->driver->DevicePrimaryCtxRelease(comm->device);
  delete comm;
  return result;
}

}  // namespace simnccl
