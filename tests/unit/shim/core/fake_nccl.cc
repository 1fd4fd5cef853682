#include "tests/unit/shim/core/fake_nccl.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rewire::shim {

namespace {

std::unique_ptr<FakeNccl>& Instance() {
  static auto* instance = new std::unique_ptr<FakeNccl>(std::make_unique<FakeNccl>());
  return *instance;
}

struct Group {
  int depth = 0;
  std::vector<FakeNccl::Comm*> aborted;  // freed at the end of the group
  std::vector<FakeNccl::Comm*> made;     // initialised at the end of the group
  ncclComm_t simulated = nullptr;        // communicator of the group's last operation
};
thread_local Group group;

// Frees a communicator. Counts a misuse if the communicator was freed before or if a thread is
// inside.
void Free(FakeNccl* nccl, FakeNccl::Comm* comm) {
  if (comm->destroyed || comm->inside > 0) ++nccl->misuses;
  comm->destroyed = true;
}

// Blocks while `*blocks` is true, for at most kPatience. An abort of the communicator ends the
// wait, unless the script sets abort_ignored. Returns ncclRemoteError after an abort.
ncclResult_t Block(FakeNccl* nccl, FakeNccl::Comm* comm, const bool* blocks)
    REWIRE_REQUIRES(nccl->mutex) {
  const Time until = Now() + FakeNccl::kPatience;
  ++comm->inside;
  while (*blocks && (!comm->aborted || nccl->abort_ignored) &&
         nccl->changed.WaitUntil(&nccl->mutex, until)) {
  }
  --comm->inside;
  return comm->aborted ? ncclRemoteError : ncclSuccess;
}

ncclResult_t GetUniqueId(ncclUniqueId* id) {
  for (char& c : id->internal) c = 'u';
  return ncclSuccess;
}

ncclResult_t CommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId /*id*/, int rank,
                                ncclConfig_t* config) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  auto comm = std::make_unique<FakeNccl::Comm>();
  FakeNccl::Comm* raw = comm.get();
  raw->number = static_cast<int>(nccl.comms.size()) + 1;
  raw->ranks = ranks;
  raw->rank = rank;
  raw->blocking = config == nullptr || config->blocking != 0;
  raw->polls_left = nccl.polls;
  auto handle = reinterpret_cast<ncclComm_t>(raw);
  nccl.comms[handle] = std::move(comm);
  __atomic_store_n(out, handle, __ATOMIC_RELEASE);
  nccl.calls.push_back(absl::StrCat("init ", raw->number));
  nccl.changed.NotifyAll();
  // The caller must abort the communicator of a failed call.
  if (nccl.init_result != ncclSuccess) return nccl.init_result;
  if (group.depth > 0) {
    group.made.push_back(raw);
    return ncclSuccess;
  }
  if (!raw->blocking) return ncclInProgress;
  return Block(&nccl, raw, &nccl.init_blocks);
}

// Returns the communicator of a handle. Counts a misuse and returns null if the communicator is
// unknown, aborted or freed.
FakeNccl::Comm* Use(FakeNccl* nccl, ncclComm_t comm) {
  FakeNccl::Comm* c = nccl->Of(comm);
  if (c != nullptr && !c->aborted && !c->destroyed) return c;
  ++nccl->misuses;
  return nullptr;
}

ncclResult_t CommFinalize(ncclComm_t comm) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  FakeNccl::Comm* c = Use(&nccl, comm);
  if (c == nullptr) return ncclInvalidArgument;
  nccl.calls.push_back(absl::StrCat("finalize ", c->number));
  return ncclSuccess;
}
ncclResult_t CommDestroy(ncclComm_t comm) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  FakeNccl::Comm* c = Use(&nccl, comm);
  if (c == nullptr) return ncclInvalidArgument;
  nccl.calls.push_back(absl::StrCat("destroy ", c->number));
  Free(&nccl, c);
  return ncclSuccess;
}
ncclResult_t CommAbort(ncclComm_t comm) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  FakeNccl::Comm* c = Use(&nccl, comm);
  if (c == nullptr) return ncclInvalidArgument;
  nccl.calls.push_back(absl::StrCat("abort ", c->number));
  c->aborted = true;
  nccl.changed.NotifyAll();
  if (group.depth > 0) {
    group.aborted.push_back(c);
  } else {
    Free(&nccl, c);
  }
  return ncclSuccess;
}

ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  FakeNccl::Comm* c = Use(&nccl, comm);
  if (c == nullptr) return ncclInvalidArgument;
  *state = c->polls_left > 0 ? ncclInProgress : c->error;
  if (c->polls_left > 0 && --c->polls_left == 0) {
    nccl.launches.push_back(absl::StrCat("settled ", c->number));
  }
  return ncclSuccess;
}

ncclResult_t GroupStart() {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  ++group.depth;
  nccl.calls.emplace_back("group");
  return ncclSuccess;
}
ncclResult_t GroupEnd() {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  nccl.calls.emplace_back("end");
  if (--group.depth > 0) return ncclSuccess;
  for (FakeNccl::Comm* comm : std::exchange(group.aborted, {})) Free(&nccl, comm);
  ncclResult_t result = ncclSuccess;
  const std::vector<FakeNccl::Comm*> made = std::exchange(group.made, {});
  // The ranks of a group are initialised together: all are inside until the last has returned.
  for (FakeNccl::Comm* comm : made) ++comm->inside;
  for (FakeNccl::Comm* comm : made) {
    if (comm->blocking && Block(&nccl, comm, &nccl.init_blocks) != ncclSuccess) {
      result = ncclRemoteError;
    } else if (!comm->blocking) {
      result = ncclInProgress;
    }
  }
  for (FakeNccl::Comm* comm : made) --comm->inside;
  return result;
}
ncclResult_t GroupSimulateEnd(ncclSimInfo_t* info) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  --group.depth;
  nccl.calls.emplace_back("simulate");
  if (info->magic != NCCL_SIM_INFO_MAGIC) return ncclInvalidArgument;
  if (FakeNccl::Comm* comm = nccl.Of(std::exchange(group.simulated, nullptr))) {
    if (Block(&nccl, comm, &nccl.simulation_blocks) != ncclSuccess) return ncclRemoteError;
  }
  return nccl.simulate_result;
}

// Issues an operation. Inside a group the operation is only recorded, for GroupSimulateEnd().
ncclResult_t Operation(const char* name, size_t count, ncclDataType_t type, ncclComm_t comm) {
  FakeNccl& nccl = FakeNccl::Get();
  if (group.depth > 0) {
    MutexLock lock(&nccl.mutex);
    nccl.simulated.push_back(absl::StrCat(name, " ", count, " of type ", static_cast<int>(type)));
    group.simulated = comm;
    return ncclSuccess;
  }
  return FakeNccl::Operate(comm, count);
}

ncclResult_t AllReduce(const void* /*in*/, void* /*out*/, size_t count, ncclDataType_t type,
                       ncclRedOp_t /*op*/, ncclComm_t comm, cudaStream_t /*stream*/) {
  return Operation("AllReduce", count, type, comm);
}
ncclResult_t Broadcast(const void* /*in*/, void* /*out*/, size_t count, ncclDataType_t type,
                       int /*root*/, ncclComm_t comm, cudaStream_t /*stream*/) {
  return Operation("Broadcast", count, type, comm);
}
ncclResult_t Reduce(const void* /*in*/, void* /*out*/, size_t count, ncclDataType_t type,
                    ncclRedOp_t /*op*/, int /*root*/, ncclComm_t comm, cudaStream_t /*stream*/) {
  return Operation("Reduce", count, type, comm);
}
ncclResult_t AllGather(const void* /*in*/, void* /*out*/, size_t count, ncclDataType_t type,
                       ncclComm_t comm, cudaStream_t /*stream*/) {
  return Operation("AllGather", count, type, comm);
}
ncclResult_t ReduceScatter(const void* /*in*/, void* /*out*/, size_t count, ncclDataType_t type,
                           ncclRedOp_t /*op*/, ncclComm_t comm, cudaStream_t /*stream*/) {
  return Operation("ReduceScatter", count, type, comm);
}

ncclResult_t Send(const void* /*in*/, size_t /*count*/, ncclDataType_t /*type*/, int peer,
                  ncclComm_t comm, cudaStream_t /*stream*/) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  nccl.sends.push_back(absl::StrCat(nccl.Of(comm)->rank, " to ", peer));
  return nccl.send_result;
}
ncclResult_t Recv(void* /*out*/, size_t /*count*/, ncclDataType_t /*type*/, int peer,
                  ncclComm_t comm, cudaStream_t /*stream*/) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  nccl.sends.push_back(absl::StrCat(peer, " to ", nccl.Of(comm)->rank));
  return nccl.send_result;
}

}  // namespace

FakeNccl& FakeNccl::Get() { return *Instance(); }
void FakeNccl::Reset() { Instance() = std::make_unique<FakeNccl>(); }

FakeNccl::Comm* FakeNccl::Of(ncclComm_t comm) {
  const auto it = comms.find(comm);
  return it != comms.end() ? it->second.get() : nullptr;
}

int FakeNccl::Live() {
  MutexLock lock(&mutex);
  int live = 0;
  for (const auto& [handle, comm] : comms) live += comm->destroyed ? 0 : 1;
  return live;
}

int FakeNccl::Blocked() {
  MutexLock lock(&mutex);
  return blocked;
}

void FakeNccl::Release() {
  MutexLock lock(&mutex);
  init_blocks = false;
  simulation_blocks = false;
  operations_block = false;
  changed.NotifyAll();
}

ncclResult_t FakeNccl::Operate(ncclComm_t comm, size_t tag) {
  FakeNccl& nccl = Get();
  MutexLock lock(&nccl.mutex);
  Comm* c = Use(&nccl, comm);
  if (c == nullptr) return ncclInvalidArgument;
  if (nccl.operation_result != ncclSuccess) return nccl.operation_result;
  c->operations.push_back(tag);
  nccl.launches.push_back(absl::StrCat(c->number, ".", tag));
  nccl.changed.NotifyAll();
  if (!c->blocking) {
    c->polls_left = nccl.operation_polls;
    return c->polls_left > 0 ? ncclInProgress : ncclSuccess;
  }
  ++nccl.blocked;
  const ncclResult_t result = Block(&nccl, c, &nccl.operations_block);
  --nccl.blocked;
  return result;
}

NcclCalls FakeNccl::Calls(bool abort_frees_at_group_end) {
  NcclCalls calls;
  calls.GetUniqueId = ::rewire::shim::GetUniqueId;
  calls.CommInitRankConfig = ::rewire::shim::CommInitRankConfig;
  calls.CommFinalize = ::rewire::shim::CommFinalize;
  calls.CommDestroy = ::rewire::shim::CommDestroy;
  calls.CommAbort = ::rewire::shim::CommAbort;
  calls.abort_frees_at_group_end = abort_frees_at_group_end;
  calls.CommGetAsyncError = ::rewire::shim::CommGetAsyncError;
  calls.GetLastError = [](ncclComm_t) { return "socket: Too many open files\n"; };
  calls.GroupStart = ::rewire::shim::GroupStart;
  calls.GroupEnd = ::rewire::shim::GroupEnd;
  calls.GroupSimulateEnd = ::rewire::shim::GroupSimulateEnd;
  calls.AllReduce = ::rewire::shim::AllReduce;
  calls.Broadcast = ::rewire::shim::Broadcast;
  calls.Reduce = ::rewire::shim::Reduce;
  calls.AllGather = ::rewire::shim::AllGather;
  calls.ReduceScatter = ::rewire::shim::ReduceScatter;
  calls.Send = ::rewire::shim::Send;
  calls.Recv = ::rewire::shim::Recv;
  return calls;
}

}  // namespace rewire::shim
