// The entries that end communicators. Any thread: a watchdog may abort while the trainer is inside.
#include "rewire_entries.h"
#include "shim/preload/core_loader.h"
#include "shim/preload/issue.h"
#include "shim/preload/pool.h"

namespace rewire::shim {

namespace {

using CloseFunction = ncclResult_t (*)(ncclComm_t comm);

// Keeps the generation of a child that a non-blocking parent is still making. NCCL's thread will
// store the real communicator into the generation, so its memory is never given back.
void KeepUnborn(VirtualCommunicator* comm) noexcept {
  if (comm->recipe.creation != Creation::kSplit && comm->recipe.creation != Creation::kShrink)
    return;
  bool unborn = false;
  {
    const Inside inside(comm);
    const Generation* generation = inside.generation();
    unborn = generation != nullptr && generation->Real() == nullptr &&
             generation->state.load(std::memory_order_acquire) == GenerationState::kOpen;
  }
  if (unborn) KeepGeneration(comm);
}

// Returns the calling thread's open group, or nullptr.
GroupState* OpenGroup() noexcept {
  ThreadSlot* slot = Slot();
  return slot->group_depth == 0 ? nullptr : ThisGroup(slot);
}

// Does Destroy or Abort. The handle is stale on return (in a group: when the group has ended).
ncclResult_t Close(ncclComm_t handle, bool aborting, CloseFunction close) {
  VirtualCommunicator* comm = Ours(handle);
  if (comm == nullptr) {
    const ncclResult_t refused = Foreign(handle);
    return refused != ncclSuccess ? refused : close(handle);
  }
  // A second thread that closes the communicator at the same time must not reach NCCL.
  if (comm->closing.exchange(true, std::memory_order_acq_rel)) return ncclInvalidArgument;
  TellClosing(comm, aborting);
  GroupState* const group = OpenGroup();
  Generation* aborted = nullptr;
  ncclResult_t result = ncclSuccess;
  {
    const Inside inside(comm);
    const Generation* generation = inside.generation();
    if (aborting && generation != nullptr &&
        generation->state.load(std::memory_order_acquire) == GenerationState::kAborted) {
      NoteLossKnown();
    }
    // The core has already aborted the real communicator of an aborted generation.
    if (generation != nullptr && generation->Real() != nullptr &&
        generation->state.load(std::memory_order_acquire) == GenerationState::kOpen) {
      // After a successful close the core must never poll again, so the thread stays entered.
      if (!comm->recipe.blocking) generation->callers.Enter();
      result = close(generation->Real());
      if (!comm->recipe.blocking && !Taken(result)) generation->callers.Leave();
      // No thread enters any more.
      if (aborting && group != nullptr) aborted = Publish(comm, nullptr);
    }
  }
  if (!Taken(result) && !aborting) {
    comm->closing.store(false, std::memory_order_release);
    return result;  // the communicator still exists and can be aborted
  }
  KeepUnborn(comm);
  if (group != nullptr) {
    group->ended.push_back({comm, aborted});
  } else {
    DropCommunicator(comm);
  }
  return result;
}

template <typename Call>
ncclResult_t Quieten(ncclComm_t handle, bool aborting, Call&& call) {
  if (VirtualCommunicator* comm = Ours(handle)) {
    const ncclResult_t first = AwaitFirst(comm);
    if (first != ncclSuccess) return first;
    TellClosing(comm, aborting);
  }
  return Translate<ncclResult_t>(handle, [&](const Target& target) { return call(target.comm); });
}

}  // namespace

namespace entry {

ncclResult_t CommDestroy(ncclComm_t comm) { return Close(comm, false, Real()->CommDestroy); }

// A group separates NCCL's two steps: the flags, which bring a thread out of a blocking call, and
// the end of the group, which frees. The group entry waits in between (shim/preload/group.cc).
ncclResult_t CommAbort(ncclComm_t comm) {
  const VirtualCommunicator* ours = Ours(comm);
  const bool grouped = ours != nullptr && ours->recipe.blocking && OpenGroup() == nullptr &&
                       Real()->AbortFreesAtGroupEnd();
  if (!grouped) return Close(comm, true, Real()->CommAbort);
  const ncclResult_t started = GroupStart();
  const ncclResult_t aborted = Close(comm, true, Real()->CommAbort);
  if (started != ncclSuccess) return aborted;
  const ncclResult_t ended = GroupEnd();
  return Taken(aborted) ? ended : aborted;
}

ncclResult_t CommFinalize(ncclComm_t comm) {
  return Quieten(comm, false, [](ncclComm_t real) { return Real()->CommFinalize(real); });
}

ncclResult_t CommRevoke(ncclComm_t comm, int revokeFlags) {
  return Quieten(comm, true,
                 [&](ncclComm_t real) { return Real()->CommRevoke(real, revokeFlags); });
}

}  // namespace entry
}  // namespace rewire::shim
