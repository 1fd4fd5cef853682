// The exports that make, query and end communicators. Thread-safe; see nccl.h for the contracts.

#include <algorithm>
#include <cstring>

#include "reconfig/base/hash.h"
#include "tests/simgpu/nccl/api.h"
#include "tests/simgpu/nccl/child.h"
#include "tests/simgpu/nccl/config.h"
#include "tests/simgpu/nccl/env.h"
#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/free.h"
#include "tests/simgpu/nccl/group.h"
#include "tests/simgpu/nccl/init.h"
#include "tests/simgpu/nccl/root.h"

using simnccl::CheckComm;
using simnccl::CheckReady;
using simnccl::Fail;

namespace simnccl {
namespace {

// NCCL's libraries have this text, by which tools find a copy of NCCL.
__attribute__((used)) const char version_text[] = "NCCL version 2.28.9+cuda13.0";

// `device` < 0: the current device.
ncclResult_t AddInit(ncclComm_t* out, int nranks, std::vector<IdContent> ids, int rank,
                     const Config& config, int device, bool frees_on_failure) {
  ncclComm* comm = nullptr;
  SIMNCCL_TRY(device < 0 ? NewComm(nranks, rank, config, &comm)
                         : NewCommOn(device, nranks, rank, config, &comm));
  comm->hash = rewire::MixWord(ids[0].key, 0);
  Job job;
  job.comm = comm;
  comm->callers.Add();
  job.inside = std::shared_ptr<void>(nullptr, [comm](void*) { comm->callers.Remove(); });
  // The handle is stored at once, so that another thread can abort.
  __atomic_store_n(out, comm, __ATOMIC_RELEASE);
  job.frees_on_failure = frees_on_failure;
  job.out = out;
  job.run = [=, ids = std::move(ids)] {
    return InitComm(comm, [&](Bootstrap* b, const Patience& patience) {
      return b->InitFromRoots(ids, rank, nranks, patience);
    });
  };
  const ncclResult_t result = AddJob(std::move(job), config.blocking);
  if (result != ncclSuccess) {
    __atomic_store_n(out, nullptr, __ATOMIC_RELEASE);
    Free(comm, true);
  }
  return result;
}

ncclResult_t InitRank(ncclComm_t* comm, int nranks, int rank, int nids, const ncclUniqueId* ids,
                      const ncclConfig_t* config, const char* call, bool frees_on_failure = false) {
  if (comm == nullptr || ids == nullptr) {
    return Fail(ncclInvalidArgument, "%s : an argument is NULL", call);
  }
  if (nranks < 1 || rank < 0 || rank >= nranks) {
    return Fail(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, nranks);
  }
  if (nids < 1 || nids > nranks) {
    return Fail(ncclInvalidArgument, "%s : improper number of ids %d for %d ranks", call, nids,
                nranks);
  }
  __atomic_store_n(comm, nullptr, __ATOMIC_RELEASE);  // another thread may read the handle already
  Config read;
  SIMNCCL_TRY(ReadConfig(config, Config{}, &read));
  std::vector<IdContent> contents(nids);
  for (int i = 0; i < nids; ++i) SIMNCCL_TRY(ParseId(ids[i], &contents[i]));
  return AddInit(comm, nranks, std::move(contents), rank, read, -1, frees_on_failure);
}

ncclResult_t AddEnd(ncclComm* comm, bool aborting) {
  if (comm->claimed.exchange(true)) return ncclSuccess;  // the communicator is being freed already
  // All communicators of a group stop before the group waits for any of them.
  if (aborting) comm->abort->Set();
  Job job;
  job.run = [=] { return Free(comm, aborting); };
  return AddJob(std::move(job), true);
}

}  // namespace
}  // namespace simnccl

extern "C" {

ncclResult_t pncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  return simnccl::PretendedVersion(version);
}

ncclResult_t pncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return Fail(ncclInvalidArgument, "GetUniqueId : out argument is NULL");
  return simnccl::MintId(id);
}

ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  int version;
  SIMNCCL_TRY(ncclGetVersion(&version));
  const bool alone = !simnccl::InsideGroup();
  return simnccl::InGroup([&] {
    return simnccl::InitRank(comm, nranks, rank, 1, &id, nullptr, "CommInitRank", alone);
  });
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                     ncclConfig_t* config) {
  return simnccl::InGroup(
      [&] { return simnccl::InitRank(comm, nranks, rank, 1, &id, config, "CommInitRankConfig"); });
}

ncclResult_t pncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int nids,
                                       ncclUniqueId* ids, ncclConfig_t* config) {
  return simnccl::InGroup([&] {
    return simnccl::InitRank(comm, nranks, rank, nids, ids, config, "CommInitRankScalable");
  });
}

ncclResult_t pncclCommInitAll(ncclComm_t* comms, int ndev, const int* devlist) {
  if (comms == nullptr || ndev < 1) {
    return Fail(ncclInvalidArgument, "Invalid device count requested : %d", ndev);
  }
  const simnccl::Driver* driver = nullptr;
  SIMNCCL_TRY(simnccl::Driver::Get(&driver));
  int present = 0;
  SIMNCCL_CU(driver->DeviceGetCount(&present));
  std::vector<int> devices(ndev);
  for (int i = 0; i < ndev; ++i) devices[i] = devlist != nullptr ? devlist[i] : i;
  for (int i = 0; i < ndev; ++i) {
    if (devices[i] < 0 || devices[i] >= present) {
      return Fail(ncclInvalidArgument, "Invalid device %d of %d", devices[i], present);
    }
    if (std::count(devices.begin(), devices.end(), devices[i]) > 1) {
      return Fail(ncclInvalidUsage, "Cliques with duplicate devices are not supported: %d",
                  devices[i]);
    }
  }
  ncclUniqueId id;
  SIMNCCL_TRY(ncclGetUniqueId(&id));
  simnccl::Config config;
  SIMNCCL_TRY(simnccl::ReadConfig(nullptr, simnccl::Config{}, &config));
  simnccl::IdContent content{};
  SIMNCCL_TRY(simnccl::ParseId(id, &content));
  return simnccl::InGroup([&] {
    for (int i = 0; i < ndev; ++i) {
      SIMNCCL_TRY(simnccl::AddInit(&comms[i], ndev, {content}, i, config, devices[i], false));
    }
    return ncclSuccess;
  });
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                            ncclConfig_t* config) {
  SIMNCCL_TRY(CheckComm(comm, "CommSplit", "comm"));
  if (newcomm == nullptr) return Fail(ncclInvalidArgument, "CommSplit : newcomm is NULL");
  if (color < NCCL_SPLIT_NOCOLOR) {
    return Fail(ncclInvalidArgument, "CommSplit : invalid color %d", color);
  }
  return simnccl::InGroup([&] {
    SIMNCCL_TRY(CheckReady(comm));
    simnccl::Config read;
    SIMNCCL_TRY(simnccl::ReadConfig(config, comm->config, &read));
    __atomic_store_n(newcomm, nullptr, __ATOMIC_RELEASE);
    const uint64_t child = ++comm->child_count;
    simnccl::Job job;
    job.comm = comm;
    job.order = comm;
    job.run = [=] { return simnccl::Split(comm, color, key, child, read, newcomm); };
    return simnccl::AddJob(std::move(job), comm->config.blocking);
  });
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int* exclude, int count, ncclComm_t* newcomm,
                             ncclConfig_t* config, int flags) {
  SIMNCCL_TRY(CheckComm(comm, "CommShrink", "comm"));
  if (newcomm == nullptr || exclude == nullptr || count < 1) {
    return Fail(ncclInvalidArgument, "CommShrink : nothing to exclude, or no newcomm");
  }
  if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT) {
    return Fail(ncclInvalidArgument, "CommShrink : invalid flags %d", flags);
  }
  std::vector<int> survivors;
  for (int r = 0; r < comm->nranks; ++r) {
    if (std::find(exclude, exclude + count, r) == exclude + count) survivors.push_back(r);
  }
  for (int i = 0; i < count; ++i) {
    if (exclude[i] < 0 || exclude[i] >= comm->nranks || exclude[i] == comm->rank) {
      return Fail(ncclInvalidArgument, "CommShrink : rank %d cannot be excluded by rank %d of %d",
                  exclude[i], comm->rank, comm->nranks);
    }
  }
  return simnccl::InGroup([&] {
    if (flags == NCCL_SHRINK_DEFAULT) {
      SIMNCCL_TRY(CheckReady(comm));
      if (!comm->launched->None()) {
        return Fail(ncclInvalidUsage, "CommShrink : the parent has operations in flight");
      }
    } else if (!comm->initialized.load()) {
      return Fail(ncclInvalidUsage, "CommShrink : the parent is not initialized");
    }
    simnccl::Config read;
    SIMNCCL_TRY(simnccl::ReadConfig(config, comm->config, &read));
    __atomic_store_n(newcomm, nullptr, __ATOMIC_RELEASE);
    const uint64_t child = ++comm->shrinks[survivors];
    if (flags == NCCL_SHRINK_ABORT && !comm->stopped.load()) {
      SIMNCCL_TRY(simnccl::EndOperations(comm));
    }
    simnccl::Job job;
    job.comm = comm;
    job.order = comm;
    job.run = [=] { return simnccl::Shrink(comm, survivors, child, read, newcomm); };
    return simnccl::AddJob(std::move(job), comm->config.blocking);
  });
}

ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  SIMNCCL_TRY(CheckComm(comm, "CommFinalize", "comm"));
  return simnccl::InGroup([&] {
    SIMNCCL_TRY(CheckReady(comm));
    if (comm->revoked.load()) {
      return Fail(ncclInvalidUsage, "CommFinalize : the communicator was revoked");
    }
    if (comm->finalized.exchange(true)) {
      return Fail(ncclInvalidArgument, "CommFinalize : called twice");
    }
    simnccl::Job job;
    job.comm = comm;
    job.order = comm;
    job.run = [=]() -> ncclResult_t {
      const simnccl::Patience patience = simnccl::PatienceOf(comm);
      while (!comm->launched->WaitNone(rewire::Now() + rewire::milliseconds(100))) {
        SIMNCCL_TRY(patience.Check("finalizing with operations in flight"));
      }
      return ncclSuccess;
    };
    return simnccl::AddJob(std::move(job), comm->config.blocking);
  });
}

ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  SIMNCCL_TRY(CheckComm(comm, "CommDestroy", "comm"));
  return simnccl::InGroup([&] { return simnccl::AddEnd(comm, false); });
}

ncclResult_t pncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  SIMNCCL_TRY(CheckComm(comm, "CommAbort", "comm"));
  // The abort ends a blocking call, perhaps before the communicator is freed.
  if (!simnccl::InsideGroup()) simnccl::CheckNoneInside(comm);
  return simnccl::InGroup([&] { return simnccl::AddEnd(comm, true); });
}

ncclResult_t pncclCommRevoke(ncclComm_t comm, int flags) {
  SIMNCCL_TRY(CheckComm(comm, "CommRevoke", "comm"));
  if (flags != NCCL_REVOKE_DEFAULT) {
    return Fail(ncclInvalidArgument, "CommRevoke : flags must be NCCL_REVOKE_DEFAULT");
  }
  if (!comm->initialized.load()) {
    return Fail(ncclInvalidUsage, "CommRevoke : the communicator is not initialized");
  }
  if (comm->revoked.exchange(true)) {
    return Fail(ncclInvalidUsage, "CommRevoke : called twice");
  }
  SIMNCCL_TRY(simnccl::EndOperations(comm));
  comm->async_result.store(ncclSuccess);
  return ncclSuccess;
}

// The memory stays; only the order of calls is checked.
ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags) {
  SIMNCCL_TRY(CheckComm(comm, "CommSuspend", "comm"));
  SIMNCCL_TRY(CheckReady(comm));
  if (flags != 0x01) return Fail(ncclInvalidArgument, "CommSuspend : invalid flags %d", flags);
  if (comm->suspended.exchange(true)) return Fail(ncclInvalidUsage, "CommSuspend : called twice");
  return ncclSuccess;
}

ncclResult_t pncclCommResume(ncclComm_t comm) {
  SIMNCCL_TRY(CheckComm(comm, "CommResume", "comm"));
  SIMNCCL_TRY(CheckReady(comm));
  if (!comm->suspended.exchange(false)) {
    return Fail(ncclInvalidUsage, "CommResume : the communicator is not suspended");
  }
  return ncclSuccess;
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  SIMNCCL_TRY(CheckComm(comm, "CommGetAsyncError", "comm"));
  if (error == nullptr) return Fail(ncclInvalidArgument, "CommGetAsyncError : asyncError is NULL");
  *error = comm->async_result.load();
  if (*error == ncclSuccess) simnccl::CompleteRun(comm);
  return ncclSuccess;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) {
  SIMNCCL_TRY(CheckComm(comm, "CommCount", "comm"));
  if (count == nullptr) return Fail(ncclInvalidArgument, "CommCount : count is NULL");
  SIMNCCL_TRY(CheckReady(comm));
  *count = comm->nranks;
  return ncclSuccess;
}

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
  SIMNCCL_TRY(CheckComm(comm, "CommCuDevice", "comm"));
  if (device == nullptr) return Fail(ncclInvalidArgument, "CommCuDevice : device is NULL");
  SIMNCCL_TRY(CheckReady(comm));
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
  SIMNCCL_TRY(CheckComm(comm, "CommUserRank", "comm"));
  if (rank == nullptr) return Fail(ncclInvalidArgument, "CommUserRank : rank is NULL");
  SIMNCCL_TRY(CheckReady(comm));
  *rank = comm->rank;
  return ncclSuccess;
}

const char* pncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* pncclGetLastError(ncclComm_t /*comm*/) { return simnccl::LastError(); }

// The logging variables are read for every line, so nothing needs reloading.
void pncclResetDebugInit(void) {}

}  // extern "C"

SIMNCCL_ALIAS(ncclGetVersion);
SIMNCCL_ALIAS(ncclGetUniqueId);
SIMNCCL_ALIAS(ncclCommInitRank);
SIMNCCL_ALIAS(ncclCommInitRankConfig);
SIMNCCL_ALIAS(ncclCommInitRankScalable);
SIMNCCL_ALIAS(ncclCommInitAll);
SIMNCCL_ALIAS(ncclCommSplit);
SIMNCCL_ALIAS(ncclCommShrink);
SIMNCCL_ALIAS(ncclCommFinalize);
SIMNCCL_ALIAS(ncclCommDestroy);
SIMNCCL_ALIAS(ncclCommAbort);
SIMNCCL_ALIAS(ncclCommRevoke);
SIMNCCL_ALIAS(ncclCommSuspend);
SIMNCCL_ALIAS(ncclCommResume);
SIMNCCL_ALIAS(ncclCommGetAsyncError);
SIMNCCL_ALIAS(ncclCommCount);
SIMNCCL_ALIAS(ncclCommCuDevice);
SIMNCCL_ALIAS(ncclCommUserRank);
SIMNCCL_ALIAS(ncclGetErrorString);
SIMNCCL_ALIAS(ncclGetLastError);
SIMNCCL_ALIAS(ncclResetDebugInit);
