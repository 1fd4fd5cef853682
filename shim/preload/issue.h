// The fast path: the way of one operation from the application to the real NCCL.
//
// Called by the entries only, on the application's threads. A thread that is cancelled inside NCCL
// unwinds through the functions that take a `call`: these are not noexcept, and what they count is
// left by destructors. Outside a group: check the
// magic, enter the current generation, compare `issued` with `stop_at`, call, count, leave. This
// path takes no lock and allocates only the counters at the first Send or Recv. The first operation
// of a kind also asks for the free memory, in the core. The order of checks and counts is specified
// in virtual_communicator.h.
#pragma once

#include <bit>

#include "shim/preload/core_loader.h"
#include "shim/preload/group.h"
#include "shim/preload/real_nccl.h"
#include "shim/preload/thread_slot.h"
#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

// The target of a call: the real communicator and its generation (nullptr for an unknown handle).
struct Target {
  ncclComm_t comm;
  const Generation* generation;

  [[nodiscard]] ncclRedOp_t Operator(ncclRedOp_t op) const {
    if (static_cast<int>(op) < kFirstOperator || generation == nullptr) [[likely]] {
      return op;
    }
    return RealOperator(*generation, op);
  }
  static ncclRedOp_t RealOperator(const Generation& generation, ncclRedOp_t op) noexcept;
};

// The caller's call with the generation of the communicator.
inline Calling CallingOn(const VirtualCommunicator* comm, const Generation* generation) noexcept {
  return {comm->recipe.blocking, &generation->callers};
}

inline bool Taken(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }
// Returns whether NCCL has rejected a call before it put anything on a stream.
inline bool Rejected(ncclResult_t result) {
  return result == ncclInvalidArgument || result == ncclInvalidUsage;
}

// Returns whether the address can be the address of a VirtualCommunicator. NULL and other addresses
// are not read: NCCL takes or rejects them.
inline bool MayBeOurs(ncclComm_t handle) noexcept {
  return handle != nullptr &&
         (reinterpret_cast<uintptr_t>(handle) & (alignof(VirtualCommunicator) - 1)) == 0;
}

// Returns the open communicator of a handle, or nullptr.
inline VirtualCommunicator* Ours(ncclComm_t handle) noexcept {
  auto* comm = reinterpret_cast<VirtualCommunicator*>(handle);
  if (!MayBeOurs(handle)) [[unlikely]]
    return nullptr;
  return comm->magic.load(std::memory_order_acquire) == Magic::kOpen ? comm : nullptr;
}

// Judges a handle that is not an open communicator. ncclSuccess: the handle is unknown and goes to
// NCCL unchanged. Any other result must be returned to the application.
ncclResult_t Foreign(ncclComm_t handle) noexcept;

// The slow path: a cut, or a generation that is missing or not open.
// Gives the generation to use (entered, unless in a group), or an error.
ncclResult_t EnterSlowly(VirtualCommunicator* comm, ThreadSlot* slot, cudaStream_t stream,
                         Generation** generation) noexcept;
// Fixes the generation at the first use of a communicator in a group.
ncclResult_t FixInGroup(VirtualCommunicator* comm, ThreadSlot* slot, cudaStream_t stream,
                        GroupUse** use) noexcept;
// Tells the core that the operation just issued was the last before the cut.
void BeforeCut(VirtualCommunicator* comm, cudaStream_t stream) noexcept;
// Converts an error of the real library into the application's error.
ncclResult_t Failed(const Generation& generation, ncclResult_t result) noexcept;
// Returns the number of calls so far that have told the program of a loss. Thread-safe.
uint64_t ReportedLosses() noexcept;
// The program aborts a lost communicator, so it knows of the loss. Thread-safe.
void NoteLossKnown() noexcept;
// Returns the call's result for the application: an error of a call during which the generation was
// aborted is ncclRemoteError. NCCL itself gives any error then.
inline ncclResult_t Judged(const Generation& generation, ncclResult_t result) noexcept {
  return Taken(result) ? result : Failed(generation, result);
}
// Looks for the CUDA driver that the process has already loaded. Returns true when the driver
// answers capture queries. Each call searches again until one is found. Thread-safe.
bool FindDriver() noexcept;
// Asks the driver whether the stream is being captured into a CUDA graph. Returns false without a
// driver, and for the legacy default stream, which cannot be captured.
bool IsCapturing(cudaStream_t stream) noexcept;
// Pins the communicator: a CUDA graph may have one of its operations. Called after the operation,
// because an operation that NCCL rejects is in no graph.
void PinCaptured(VirtualCommunicator* comm) noexcept;
// `ranks`: the ranks of the generation that the caller is inside.
PeerCounters* CountersOfPeer(VirtualCommunicator* comm, int ranks, int peer) noexcept;
// Returns the free memory of the device before the first operation of its kind; see FreeMemory().
// 0 while the stream is being captured, when a driver may refuse the question.
uint64_t FreeBeforeFirst(VirtualCommunicator* comm, cudaStream_t stream) noexcept;

template <Collective kWhich>
inline constexpr bool kCounted = kWhich != Collective::kSend&& kWhich != Collective::kRecv;

// The records of a communicator that an operation changes: kinds and sizes in use, and the sends
// and receives of each peer. Made before the operation.
template <Collective kWhich>
class UseRecord {
 public:
  UseRecord(VirtualCommunicator* comm, const Generation& generation, size_t count,
            ncclDataType_t type, int peer) noexcept
      : mask_(&comm->seen[static_cast<unsigned>(kWhich)]
                         [static_cast<unsigned>(type) & (kSeenTypes - 1)]),
        bit_(uint64_t{1} << (std::bit_width(count | 1) - 1)) {
    if constexpr (!kCounted<kWhich>) {
      const int ranks = generation.ranks.load(std::memory_order_relaxed);
      if (PeerCounters* counters = CountersOfPeer(comm, ranks, peer)) {
        counter_ = kWhich == Collective::kSend ? &counters->sent : &counters->received;
      }
    }
  }

  // Returns whether NCCL may connect ranks for the operation, because the communicator has had none
  // of its kind and size class, or none with this peer.
  [[nodiscard]] bool IsFirst() const noexcept {
    if ((mask_->load(std::memory_order_relaxed) & bit_) == 0) return true;
    return !kCounted<kWhich> && counter_ != nullptr &&
           counter_->load(std::memory_order_relaxed) == 0;
  }
  // NCCL has taken the operation.
  void Count() noexcept {
    if ((mask_->load(std::memory_order_relaxed) & bit_) == 0) [[unlikely]] {
      mask_->fetch_or(bit_, std::memory_order_relaxed);
    }
    if (!kCounted<kWhich> && counter_ != nullptr) {
      counter_->store(counter_->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }

 private:
  std::atomic<uint64_t>* const mask_;
  const uint64_t bit_;
  std::atomic<uint64_t>* counter_ = nullptr;
};

template <Collective kWhich, typename Call>
ncclResult_t IssueInGroup(VirtualCommunicator* comm, ThreadSlot* slot, cudaStream_t stream,
                          size_t count, ncclDataType_t type, int peer, Call&& call) {
  GroupUse* use = FindUse(slot->group, comm);
  if (use == nullptr) [[unlikely]] {
    const ncclResult_t refused = FixInGroup(comm, slot, stream, &use);
    if (refused != ncclSuccess) return refused;
  }
  const Generation& generation = *use->generation;
  if (generation.state.load(std::memory_order_relaxed) != GenerationState::kOpen) [[unlikely]] {
    return Failed(generation, ncclInternalError);
  }
  UseRecord<kWhich> record(comm, generation, count, type, peer);
  const ncclResult_t result = [&] {
    const Calling calling = CallingOn(comm, &generation);
    return call(Target{generation.Real(), &generation});
  }();
  // NCCL may have called back and moved the group's list.
  use = FindUse(slot->group, comm);
  if (comm->watch_capture.load(std::memory_order_relaxed) && use != nullptr && !Rejected(result) &&
      IsCapturing(stream)) [[unlikely]] {
    use->captured = true;
  }
  if (!Taken(result)) [[unlikely]]
    return Failed(generation, result);
  if (use != nullptr) {
    use->operations += kCounted<kWhich> ? 1 : 0;
    use->stream = stream;
    use->first = use->first || record.IsFirst();
  }
  record.Count();
  return result;
}

template <Collective kWhich, typename Call>
inline ncclResult_t Issue(ncclComm_t handle, cudaStream_t stream, size_t count, ncclDataType_t type,
                          int peer, Call&& call) {
  VirtualCommunicator* comm = Ours(handle);
  if (comm == nullptr) [[unlikely]] {
    const ncclResult_t refused = Foreign(handle);
    return refused != ncclSuccess ? refused : call(Target{handle, nullptr});
  }
  ThreadSlot* slot = Slot();
  if (slot->group_depth != 0) {
    return IssueInGroup<kWhich>(comm, slot, stream, count, type, peer, call);
  }
  if (slot->inside.load(std::memory_order_relaxed) != nullptr) [[unlikely]] {
    // This same thread is inside a call already. The operation's place in the order is unknown, so
    // the operation is not counted.
    const Inside inside(comm);
    if (inside.generation() == nullptr) return ncclInvalidUsage;
    const Calling calling = CallingOn(comm, inside.generation());
    return Judged(*inside.generation(),
                  call(Target{inside.generation()->Real(), inside.generation()}));
  }
  Generation* generation = Enter(slot, comm);
  if (comm->issued.load(std::memory_order_relaxed) >=
          comm->stop_at.load(std::memory_order_relaxed) ||
      generation == nullptr ||
      generation->state.load(std::memory_order_relaxed) != GenerationState::kOpen) [[unlikely]] {
    const ncclResult_t refused = EnterSlowly(comm, slot, stream, &generation);
    if (refused != ncclSuccess) return refused;
  }
  const Leaving leaving(slot);
  UseRecord<kWhich> record(comm, *generation, count, type, peer);
  uint64_t free_before = 0;
  if (record.IsFirst()) [[unlikely]] {
    free_before = FreeBeforeFirst(comm, stream);
  }
  ncclResult_t result = [&] {
    const Calling calling = CallingOn(comm, generation);
    return call(Target{generation->Real(), generation});
  }();
  if (comm->watch_capture.load(std::memory_order_relaxed)) [[unlikely]] {
    if (!Rejected(result) && IsCapturing(stream)) PinCaptured(comm);
  }
  if (Taken(result)) [[likely]] {
    if constexpr (kCounted<kWhich>) {
      const uint64_t issued = comm->issued.load(std::memory_order_relaxed) + 1;
      comm->issued.store(issued, std::memory_order_relaxed);
      if (issued == comm->stop_at.load(std::memory_order_relaxed)) [[unlikely]] {
        BeforeCut(comm, stream);
      }
    }
    comm->last_stream.store(stream, std::memory_order_relaxed);
    record.Count();
    if (free_before != 0) [[unlikely]] {
      TellTaken(comm, free_before);
    }
  } else {
    result = Failed(*generation, result);
  }
  return result;
}

// Converts an error into the result type of a call whose communicator has no target.
template <typename Result>
Result Refusal(ncclResult_t why) {
  if constexpr (std::is_same_v<Result, ncclResult_t>) {
    return why;
  } else {
    return Result{};
  }
}

// Makes a call in which only the communicator is translated. In a group, the call uses the
// generation that the group is fixed to.
template <typename Result, typename Call>
Result Translate(ncclComm_t handle, Call&& call) {
  VirtualCommunicator* comm = Ours(handle);
  if (comm == nullptr) {
    const ncclResult_t refused = Foreign(handle);
    if (refused != ncclSuccess) return Refusal<Result>(refused);
    return call(Target{handle, nullptr});
  }
  const ncclResult_t first = AwaitFirst(comm);
  if (first != ncclSuccess) return Refusal<Result>(first);
  const Inside inside(comm);
  const GroupUse* use = FindUse(Slot()->group, comm);
  Generation* generation = use != nullptr ? use->generation : inside.generation();
  if (generation == nullptr) return Refusal<Result>(ncclInvalidUsage);
  if (generation->state.load(std::memory_order_acquire) != GenerationState::kOpen) {
    return Refusal<Result>(Failed(*generation, ncclInternalError));
  }
  // NCCL defers some of these calls to the end of the group.
  HoldInOpenGroup(generation);
  const Calling calling = CallingOn(comm, generation);
  if constexpr (std::is_same_v<Result, ncclResult_t>) {
    return Judged(*generation, call(Target{generation->Real(), generation}));
  } else {
    return call(Target{generation->Real(), generation});
  }
}

}  // namespace rewire::shim
