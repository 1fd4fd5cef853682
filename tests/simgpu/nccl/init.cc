#include "tests/simgpu/nccl/init.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "reconfig/base/hash.h"
#include "tests/simgpu/nccl/connect.h"
#include "tests/simgpu/nccl/env.h"
#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/plugin.h"
#include "tests/simgpu/nccl/runtime.h"
#include "tests/simgpu/nccl/tuner.h"

namespace simnccl {
namespace {

uint64_t HashText(const std::string& text) {
  return rewire::ContentHash(text.data(), text.size(), 0) + rewire::MixWord(text.size(), 1);
}

// Computed once per process, as in NCCL: threads of one process are one host.
uint64_t HostHash() {
  static const uint64_t hash = [] {
    const std::string id = EnvText("NCCL_HOSTID");
    if (!id.empty()) return HashText(id);
    char name[256] = "";
    ::gethostname(name, sizeof(name) - 1);
    std::string text = name;
    if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re")) {
      char boot[64] = "";
      if (std::fgets(boot, sizeof(boot), file) != nullptr) text += boot;
      std::fclose(file);
    }
    return HashText(text);
  }();
  return hash;
}

// The data that every rank sends to all others.
struct PeerInfo {
  uint64_t host;
  char bus_id[32];
  int32_t version;
  int32_t nranks;
  uint64_t buffer_bytes;
};

ncclResult_t Compare(const ncclComm* comm, const std::vector<PeerInfo>& peers) {
  for (int r = 0; r < comm->nranks; ++r) {
    if (peers[r].version != comm->version) {
      return Fail(ncclInvalidUsage, "Mismatched NCCL version detected : rank %d %d rank %d %d",
                  comm->rank, comm->version, r, peers[r].version);
    }
    if (peers[r].buffer_bytes != comm->buffer_bytes) {
      return Fail(ncclInvalidUsage, "NCCL_BUFFSIZE differs between rank %d and rank %d", comm->rank,
                  r);
    }
    for (int other = r + 1; other < comm->nranks; ++other) {
      if (peers[r].host == peers[other].host &&
          std::strcmp(peers[r].bus_id, peers[other].bus_id) == 0) {
        return Fail(ncclInvalidUsage,
                    "Duplicate GPU detected : rank %d and rank %d both on CUDA device %s", r, other,
                    peers[r].bus_id);
      }
    }
  }
  return ncclSuccess;
}

ncclResult_t NewOn(const Driver* driver, CuContext context, bool retained, int device, int nranks,
                   int rank, const Config& config, ncclComm** out) {
  int64_t ignored;
  int version;
  size_t buffer_bytes;
  SIMNCCL_TRY(EnvInt("SIMNCCL_TIMEOUT_MS", 600'000, 1, 86'400'000, &ignored));
  SIMNCCL_TRY(PretendedVersion(&version));
  SIMNCCL_TRY(BufferBytes(&buffer_bytes));
  auto* comm = new ncclComm;
  comm->version = version;
  comm->buffer_bytes = buffer_bytes;
  comm->driver = driver;
  comm->context = context;
  comm->retained_primary = retained;
  comm->device = device;
  comm->nranks = nranks;
  comm->rank = rank;
  comm->config = config;
  comm->connections.peer_send.resize(nranks);
  comm->connections.peer_recv.resize(nranks);
  *out = comm;
  return ncclSuccess;
}

}  // namespace

ncclResult_t NewComm(int nranks, int rank, const Config& config, ncclComm** comm) {
  const Driver* driver = nullptr;
  SIMNCCL_TRY(Driver::Get(&driver));
  CuContext context = nullptr;
  SIMNCCL_CU(driver->CtxGetCurrent(&context));
  // Without a current context the device is 0, as in the runtime.
  if (context == nullptr) return NewCommOn(0, nranks, rank, config, comm);
  int device = 0;
  SIMNCCL_CU(driver->CtxGetDevice(&device));
  return NewOn(driver, context, false, device, nranks, rank, config, comm);
}

ncclResult_t NewCommOn(int device, int nranks, int rank, const Config& config, ncclComm** comm) {
  const Driver* driver = nullptr;
  SIMNCCL_TRY(Driver::Get(&driver));
  CuContext context = nullptr;
  SIMNCCL_CU(driver->DevicePrimaryCtxRetain(&context, device));
  return NewOn(driver, context, true, device, nranks, rank, config, comm);
}

ncclResult_t InitComm(ncclComm* comm,
                      const std::function<ncclResult_t(Bootstrap*, const Patience&)>& join) {
  const RuntimeUse use;
  ContextScope scope(comm->driver, comm->context);
  const Patience patience = PatienceOf(comm);
  comm->service = std::make_unique<Service>();
  comm->progress = std::make_unique<Progress>(comm->abort, &comm->async_result);
  SIMNCCL_TRY(AssignNet(comm));
  SIMNCCL_CU(comm->driver->EventCreate(&comm->last_event, 2 /* without timing */));
  SIMNCCL_TRY(join(&comm->bootstrap, patience));

  std::vector<PeerInfo> peers(comm->nranks);
  PeerInfo& own = peers[comm->rank];
  own.host = HostHash();
  SIMNCCL_CU(comm->driver->DeviceGetPCIBusId(own.bus_id, sizeof(own.bus_id), comm->device));
  own.version = comm->version;
  own.nranks = comm->nranks;
  own.buffer_bytes = comm->buffer_bytes;
  SIMNCCL_TRY(comm->bootstrap.AllGather(peers.data(), sizeof(PeerInfo), patience));
  SIMNCCL_TRY(Compare(comm, peers));

  std::set<uint64_t> hosts;
  for (const PeerInfo& peer : peers) hosts.insert(peer.host);
  SIMNCCL_TRY(AssignTuner(comm, static_cast<int>(hosts.size())));
  char* state = nullptr;
  SIMNCCL_TRY(AllocateFor(comm, comm->buffer_bytes, &state));
  comm->initialized.store(true);
  return ncclSuccess;
}

}  // namespace simnccl
