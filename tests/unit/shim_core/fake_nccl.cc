#include "tests/unit/shim_core/fake_nccl.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rewire::shim {

namespace {

std::unique_ptr<FakeNccl>& Instance() {
  static auto* instance = new std::unique_ptr<FakeNccl>(std::make_unique<FakeNccl>());
  return *instance;
}

ncclResult_t GetUniqueId(ncclUniqueId* id) {
  for (char& c : id->internal) c = 'u';
  return ncclSuccess;
}

ncclResult_t Init(ncclComm_t* out, int ranks, int rank, bool blocking) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  auto comm = std::make_unique<FakeNccl::Comm>();
  FakeNccl::Comm* raw = comm.get();
  raw->number = static_cast<int>(nccl.comms.size()) + 1;
  raw->ranks = ranks;
  raw->rank = rank;
  raw->blocking = blocking;
  raw->polls_left = nccl.polls;
  auto handle = reinterpret_cast<ncclComm_t>(raw);
  nccl.comms[handle] = std::move(comm);
  __atomic_store_n(out, handle, __ATOMIC_RELEASE);
  nccl.calls.push_back(absl::StrCat("init ", raw->number));
  nccl.changed.NotifyAll();
  if (nccl.init_result != ncclSuccess) {
    raw->destroyed = true;
    return nccl.init_result;
  }
  if (!blocking) return ncclInProgress;
  const Time until = Now() + FakeNccl::kPatience;
  while (nccl.init_blocks && !raw->aborted && nccl.changed.WaitUntil(&nccl.mutex, until)) {
  }
  return raw->aborted ? ncclRemoteError : ncclSuccess;
}

ncclResult_t CommInitRank(ncclComm_t* out, int ranks, ncclUniqueId /*id*/, int rank) {
  return Init(out, ranks, rank, true);
}
ncclResult_t CommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId /*id*/, int rank,
                                ncclConfig_t* config) {
  return Init(out, ranks, rank, config->blocking != 0);
}

ncclResult_t Note(const char* what, ncclComm_t comm, bool FakeNccl::Comm::*flag) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  FakeNccl::Comm* c = nccl.Of(comm);
  if (c == nullptr || c->aborted || c->destroyed) {
    ++nccl.misuses;
    return ncclInvalidArgument;
  }
  nccl.calls.push_back(absl::StrCat(what, " ", c->number));
  if (flag != nullptr) c->*flag = true;
  nccl.changed.NotifyAll();
  return ncclSuccess;
}

ncclResult_t CommFinalize(ncclComm_t comm) { return Note("finalize", comm, nullptr); }
ncclResult_t CommDestroy(ncclComm_t comm) {
  return Note("destroy", comm, &FakeNccl::Comm::destroyed);
}
ncclResult_t CommAbort(ncclComm_t comm) { return Note("abort", comm, &FakeNccl::Comm::aborted); }
ncclResult_t CommRevoke(ncclComm_t comm, int /*flags*/) {
  return Note("revoke", comm, &FakeNccl::Comm::revoked);
}

ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  FakeNccl::Comm* c = nccl.Of(comm);
  if (c == nullptr || c->destroyed) return ncclInvalidArgument;
  *state = c->polls_left > 0 ? ncclInProgress : ncclSuccess;
  if (c->polls_left > 0) --c->polls_left;
  return ncclSuccess;
}

const char* GetLastError(ncclComm_t /*comm*/) { return ""; }

ncclResult_t GroupStart() {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  ++nccl.group_depth;
  nccl.calls.emplace_back("group");
  return ncclSuccess;
}
ncclResult_t GroupEnd() {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  --nccl.group_depth;
  nccl.calls.emplace_back("end");
  return ncclSuccess;
}
ncclResult_t GroupSimulateEnd(ncclSimInfo_t* info) {
  FakeNccl& nccl = FakeNccl::Get();
  MutexLock lock(&nccl.mutex);
  --nccl.group_depth;
  nccl.calls.emplace_back("simulate");
  return info->magic == NCCL_SIM_INFO_MAGIC ? nccl.simulate_result : ncclInvalidArgument;
}

ncclResult_t Operation(const char* name, size_t count, ncclDataType_t type, ncclComm_t comm) {
  FakeNccl& nccl = FakeNccl::Get();
  {
    MutexLock lock(&nccl.mutex);
    if (nccl.group_depth > 0) {
      nccl.simulated.push_back(absl::StrCat(name, " ", count, " of type ", static_cast<int>(type)));
      return ncclSuccess;
    }
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
  for (const auto& [handle, comm] : comms) live += !comm->aborted && !comm->destroyed ? 1 : 0;
  return live;
}

int FakeNccl::Blocked() {
  MutexLock lock(&mutex);
  return blocked;
}

ncclResult_t FakeNccl::Operate(ncclComm_t comm, size_t tag) {
  FakeNccl& nccl = Get();
  MutexLock lock(&nccl.mutex);
  Comm* c = nccl.Of(comm);
  if (c == nullptr || c->destroyed || c->aborted) {
    ++nccl.misuses;
    return ncclInvalidArgument;
  }
  if (nccl.operation_result != ncclSuccess) return nccl.operation_result;
  c->operations.push_back(tag);
  nccl.changed.NotifyAll();
  const Time until = Now() + kPatience;
  ++nccl.blocked;
  while (nccl.operations_block && !c->revoked && !c->aborted &&
         nccl.changed.WaitUntil(&nccl.mutex, until)) {
  }
  --nccl.blocked;
  return c->revoked || c->aborted ? ncclRemoteError : ncclSuccess;
}

NcclCalls FakeNccl::Calls(bool with_revoke) {
  NcclCalls calls;
  calls.GetUniqueId = ::rewire::shim::GetUniqueId;
  calls.CommInitRank = ::rewire::shim::CommInitRank;
  calls.CommInitRankConfig = ::rewire::shim::CommInitRankConfig;
  calls.CommFinalize = ::rewire::shim::CommFinalize;
  calls.CommDestroy = ::rewire::shim::CommDestroy;
  calls.CommAbort = ::rewire::shim::CommAbort;
  if (with_revoke) calls.CommRevoke = ::rewire::shim::CommRevoke;
  calls.CommGetAsyncError = ::rewire::shim::CommGetAsyncError;
  calls.GetLastError = ::rewire::shim::GetLastError;
  calls.GroupStart = ::rewire::shim::GroupStart;
  calls.GroupEnd = ::rewire::shim::GroupEnd;
  calls.GroupSimulateEnd = ::rewire::shim::GroupSimulateEnd;
  calls.AllReduce = ::rewire::shim::AllReduce;
  calls.Broadcast = ::rewire::shim::Broadcast;
  calls.Reduce = ::rewire::shim::Reduce;
  calls.AllGather = ::rewire::shim::AllGather;
  calls.ReduceScatter = ::rewire::shim::ReduceScatter;
  return calls;
}

}  // namespace rewire::shim
