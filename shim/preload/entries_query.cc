// The entries that query a communicator. The shim answers: membership may change. Thread-safe.
#include "rewire_entries.h"
#include "shim/preload/core_loader.h"
#include "shim/preload/issue.h"

namespace rewire::shim {

namespace {

// Answers from an open communicator's current generation. A value that is not known yet (a child
// that NCCL is still making) is requested from NCCL.
ncclResult_t Ask(ncclComm_t handle, int* out, std::atomic<int> Generation::*known,
                 ncclResult_t (*ask)(const ncclComm_t, int*)) {
  VirtualCommunicator* comm = Ours(handle);
  if (comm == nullptr || out == nullptr) {
    const ncclResult_t refused = comm == nullptr ? Foreign(handle) : ncclInvalidArgument;
    return refused != ncclSuccess ? refused : ask(handle, out);
  }
  {
    // A joiner's ranks are known before its first generation.
    const Inside inside(comm);
    const Generation* generation = inside.generation();
    if (generation == nullptr) return ncclInvalidUsage;
    const int value = (generation->*known).load(std::memory_order_relaxed);
    if (value >= 0) {
      *out = value;
      return ncclSuccess;
    }
  }
  const ncclResult_t first = AwaitFirst(comm);
  if (first != ncclSuccess) return first;
  const Inside inside(comm);
  const Generation* generation = inside.generation();
  if (generation == nullptr) return ncclInvalidUsage;
  if (generation->state.load(std::memory_order_acquire) != GenerationState::kOpen) {
    return Failed(*generation, ncclInternalError);
  }
  const Calling calling = CallingOn(comm, generation);
  return ask(generation->Real(), out);
}

// A child that NCCL has not stored yet is in progress as long as its parent has no error.
ncclResult_t AsyncErrorOfUnborn(VirtualCommunicator* comm, ncclResult_t* error) {
  *error = ncclInProgress;
  VirtualCommunicator* parent = comm->parent.load(std::memory_order_relaxed);
  if (parent == nullptr || parent->magic.load(std::memory_order_acquire) != Magic::kOpen) {
    return ncclSuccess;
  }
  ncclResult_t of_parent = ncclSuccess;
  const Inside inside(parent);
  const Generation* generation = inside.generation();
  if (generation == nullptr || generation->Real() == nullptr ||
      generation->state.load(std::memory_order_acquire) != GenerationState::kOpen) {
    return ncclSuccess;
  }
  const Calling calling = CallingOn(parent, generation);
  if (Real()->CommGetAsyncError(generation->Real(), &of_parent) == ncclSuccess &&
      !Taken(of_parent)) {
    *error = of_parent;
  }
  return ncclSuccess;
}

}  // namespace

namespace entry {

ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  VirtualCommunicator* ours = Ours(comm);
  if (ours == nullptr || asyncError == nullptr) {
    const ncclResult_t refused = ours == nullptr ? Foreign(comm) : ncclInvalidArgument;
    return refused != ncclSuccess ? refused : Real()->CommGetAsyncError(comm, asyncError);
  }
  const Inside inside(ours);
  const Generation* generation = inside.generation();
  if (generation == nullptr) {
    *asyncError = ncclInvalidUsage;
    return ncclSuccess;
  }
  if (generation->state.load(std::memory_order_acquire) != GenerationState::kOpen) {
    *asyncError = Failed(*generation, ncclInternalError);
    return ncclSuccess;
  }
  const ncclComm_t real = generation->Real();
  if (real == nullptr && ours->awaits_first.load(std::memory_order_acquire)) {
    *asyncError = ncclSuccess;  // to the program, a creation that has ended
    return ncclSuccess;
  }
  if (real == nullptr) return AsyncErrorOfUnborn(ours, asyncError);
  const ncclResult_t result = [&] {
    const Calling calling = CallingOn(ours, generation);
    return Real()->CommGetAsyncError(real, asyncError);
  }();
  if (result != ncclSuccess) return Failed(*generation, result);
  if (*asyncError == ncclSuccess) {
    if (generation->device.load(std::memory_order_relaxed) < 0) NoteIfReady(ours);
    ours->registrations.TakeStored(generation->values);
  }
  return result;
}

ncclResult_t CommCount(const ncclComm_t comm, int* count) {
  return Ask(comm, count, &Generation::ranks, Real()->CommCount);
}
ncclResult_t CommUserRank(const ncclComm_t comm, int* rank) {
  return Ask(comm, rank, &Generation::rank, Real()->CommUserRank);
}
ncclResult_t CommCuDevice(const ncclComm_t comm, int* device) {
  return Ask(comm, device, &Generation::device, Real()->CommCuDevice);
}

const char* GetLastError(ncclComm_t comm) {
  // NCCL ignores the communicator, and a program without a communicator also calls this function.
  // So every call gets an answer.
  VirtualCommunicator* ours = Ours(comm);
  if (const CoreTable* core = Core(); core != nullptr && (ours != nullptr || comm == nullptr)) {
    if (const char* why = core->last_error(ours)) return why;
  }
  if (ours == nullptr) return Real()->GetLastError(Foreign(comm) == ncclSuccess ? comm : nullptr);
  const Inside inside(ours);
  return Real()->GetLastError(inside.generation() == nullptr ? nullptr
                                                             : inside.generation()->Real());
}

}  // namespace entry
}  // namespace rewire::shim
