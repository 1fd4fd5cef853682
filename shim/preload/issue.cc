#include "shim/preload/issue.h"

#include <dlfcn.h>

#include <new>

#include "reconfig/base/cancellation.h"
#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"
#include "shim/preload/core_loader.h"

namespace rewire::shim {

ncclRedOp_t Target::RealOperator(const Generation& generation, ncclRedOp_t op) noexcept {
  const auto value = generation.values.Get(static_cast<uint32_t>(op) - kFirstOperator);
  // NCCL rejects an operator that Rewire never returned.
  return value ? static_cast<ncclRedOp_t>(*value) : op;
}

namespace {

// A watchdog may poll a handle without end, so only the first few lines are logged.
void Warn(ncclComm_t handle, const char* what) {
  constexpr int kLines = 8;
  static std::atomic<int> lines{0};
  if (lines.fetch_add(1, std::memory_order_relaxed) >= kLines) return;
  REWIRE_WARN("communicator %p: %s", static_cast<void*>(handle), what);
}

}  // namespace

ncclResult_t Foreign(ncclComm_t handle) noexcept {
  if (!MayBeOurs(handle)) return ncclSuccess;
  switch (reinterpret_cast<VirtualCommunicator*>(handle)->magic.load(std::memory_order_acquire)) {
    case Magic::kDestroyed:
      Warn(handle, "the handle is used after the communicator was destroyed");
      return ncclInvalidArgument;
    case Magic::kOtherProcess:
      Warn(handle, "the communicator was made before fork() and cannot be used in the child");
      return ncclInvalidUsage;
    case Magic::kOpen:  // opened again in between: the handle was stale
      return ncclInvalidArgument;
  }
  return ncclSuccess;
}

namespace {

bool CutDue(const VirtualCommunicator* comm) {
  return comm->issued.load(std::memory_order_relaxed) >=
         comm->stop_at.load(std::memory_order_relaxed);
}

bool Open(const Generation* generation) {
  return generation != nullptr &&
         generation->state.load(std::memory_order_acquire) == GenerationState::kOpen;
}

// Called while the slot is in a generation; afterwards the slot is in another one. The thread
// checks again after each entry, because a pledge for the next operation relies on later entries.
ncclResult_t PassCuts(VirtualCommunicator* comm, ThreadSlot* slot, CallSite site,
                      Generation** generation) {
  const CoreTable* core = Core();
  for (int i = 0; core != nullptr && CutDue(comm); ++i) {
    // A member that has begun a swap completes it.
    const PostponedCancellation postponed;
    const User user(comm);
    Leave(slot);
    const ncclResult_t result = i < kCutsPerCall ? core->at_cut(comm, site) : ncclInternalError;
    if (result != ncclSuccess) return result;
    *generation = Enter(slot, comm);
    // Makes the program's windows and the registrations that are newer than the generation.
    if (Open(*generation)) {
      const ncclResult_t replayed = ReplayAll(comm, *generation, site.group_depth);
      if (replayed == ncclSuccess) continue;
      const ncclResult_t failed = Failed(**generation, replayed);
      Leave(slot);
      return failed;
    }
  }
  return ncclSuccess;
}

ncclResult_t NotUsable(VirtualCommunicator* comm, const Generation* generation) {
  if (generation != nullptr) return Failed(*generation, ncclInternalError);
  // The communicator was destroyed meanwhile, or this member is no longer part of it.
  const ncclResult_t stale = Foreign(reinterpret_cast<ncclComm_t>(comm));
  return comm->magic.load(std::memory_order_acquire) == Magic::kOpen ? ncclInvalidUsage : stale;
}

}  // namespace

ncclResult_t EnterSlowly(VirtualCommunicator* comm, ThreadSlot* slot, cudaStream_t stream,
                         Generation** generation) noexcept {
  const ncclResult_t passed = PassCuts(comm, slot, {stream, 0}, generation);
  if (passed != ncclSuccess) return passed;
  if (Open(*generation)) return ncclSuccess;
  const ncclResult_t result = NotUsable(comm, *generation);
  Leave(slot);
  return result;
}

ncclResult_t FixInGroup(VirtualCommunicator* comm, ThreadSlot* slot, cudaStream_t stream,
                        GroupUse** use) noexcept {
  GroupState* group = ThisGroup(slot);
  if (group == nullptr) return ncclSystemError;
  if (slot->inside.load(std::memory_order_relaxed) != nullptr) return ncclInvalidUsage;
  Generation* generation = Enter(slot, comm);
  const ncclResult_t passed = PassCuts(comm, slot, {stream, slot->group_depth}, &generation);
  if (passed != ncclSuccess) return passed;
  if (!Open(generation)) {
    const ncclResult_t result = NotUsable(comm, generation);
    Leave(slot);
    return result;
  }
  generation->fixed.fetch_add(1, std::memory_order_seq_cst);
  Leave(slot);
  try {
    group->uses.push_back({comm, generation, 0, stream, false, false});
  } catch (const std::bad_alloc&) {
    generation->fixed.fetch_sub(1, std::memory_order_seq_cst);
    return ncclSystemError;
  }
  group->last_use = static_cast<uint32_t>(group->uses.size()) - 1;
  *use = &group->uses.back();
  return ncclSuccess;
}

void BeforeCut(VirtualCommunicator* comm, cudaStream_t stream) noexcept {
  const PostponedCancellation postponed;
  if (const CoreTable* core = Core()) core->before_cut(comm, {stream, 0});
}

namespace {

std::atomic<uint64_t> reported_losses{0};

}  // namespace

uint64_t ReportedLosses() noexcept { return reported_losses.load(std::memory_order_acquire); }

void NoteLossKnown() noexcept { reported_losses.fetch_add(1, std::memory_order_acq_rel); }

ncclResult_t Failed(const Generation& generation, ncclResult_t result) noexcept {
  switch (generation.state.load(std::memory_order_acquire)) {
    case GenerationState::kAborted:
      NoteLossKnown();
      return ncclRemoteError;
    case GenerationState::kClosed:
      return ncclInvalidUsage;
    case GenerationState::kOpen:
      break;
  }
  return result;
}

namespace {

// CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus*); 0 is success, status 0 is none.
using StreamIsCapturing = int (*)(cudaStream_t stream, int* status);
std::atomic<StreamIsCapturing> stream_is_capturing{nullptr};

}  // namespace

bool IsCapturing(cudaStream_t stream) noexcept {
  const StreamIsCapturing ask = stream_is_capturing.load(std::memory_order_acquire);
  // CU_STREAM_LEGACY is 1.
  if (ask == nullptr || reinterpret_cast<uintptr_t>(stream) <= 1) return false;
  int status = 0;
  return ask(stream, &status) == 0 && status != 0;
}

bool FindDriver() noexcept {
  if (stream_is_capturing.load(std::memory_order_relaxed) != nullptr) return true;
  // RTLD_NOLOAD: a process without a driver captures nothing, so this call never loads the driver.
  void* driver = dlopen(Settings::Get().cuda_library().c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  stream_is_capturing.store(
      reinterpret_cast<StreamIsCapturing>(dlsym(driver, "cuStreamIsCapturing")),
      std::memory_order_release);
  return stream_is_capturing.load(std::memory_order_relaxed) != nullptr;
}

void PinCaptured(VirtualCommunicator* comm) noexcept {
  // Before the pin: rewireGraphsReleased() on another thread takes the pin off and watches again.
  comm->watch_capture.store(false, std::memory_order_relaxed);
  if (AddPin(comm, Pin::kGraph)) TellPinned(comm);
}

uint64_t FreeBeforeFirst(VirtualCommunicator* comm, cudaStream_t stream) noexcept {
  return IsCapturing(stream) ? 0 : FreeMemory(comm);
}

PeerCounters* CountersOfPeer(VirtualCommunicator* comm, int ranks, int peer) noexcept {
  PeerCounters* peers = comm->peers.load(std::memory_order_acquire);
  if (peers == nullptr) {
    if (ranks <= 0) return nullptr;
    auto* fresh = new (std::nothrow) PeerCounters[static_cast<size_t>(ranks)];
    if (fresh == nullptr) return nullptr;
    comm->peer_count.store(ranks, std::memory_order_relaxed);
    if (comm->peers.compare_exchange_strong(peers, fresh, std::memory_order_acq_rel)) {
      peers = fresh;
    } else {
      delete[] fresh;
    }
  }
  // A world that has grown has uncounted new peers, which carry no p2p over a cut.
  const int count = comm->peer_count.load(std::memory_order_relaxed);
  return peer >= 0 && peer < count ? &peers[peer] : nullptr;
}

}  // namespace rewire::shim
