// The C boundary between the preloaded library (libc alone: entries, handles, the fast path) and
// the core in librewire.so (recipes, builds, swaps, the agent), which is dlopened at the first
// communicator. Both sides are of one build; version is checked at load.
//
// Ownership: VirtualCommunicator and Generation objects belong to the preloaded library's memory
// (shim/virtual_communicator.h); the core changes them only through the atomics named there.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

struct VirtualCommunicator;
struct Generation;
struct RealNccl;  // table of the real library's pnccl* functions, shim/real_nccl.h

inline constexpr uint32_t kCoreAbiVersion = 3;

// Where a thread stands when it calls the core: inside an ncclGroup or not.
struct CallSite {
  cudaStream_t stream;
  int group_depth;
};

// What the preloaded library does for the core: everything that needs to know which threads are
// inside a communicator. Any thread; no lock is held when a call returns.
struct ShimServices {
  // A generation of nobody: state kOpen, real nullptr. `&generation->real` is what NCCL is given.
  // nullptr: no memory.
  Generation* (*new_generation)(uint64_t epoch, int ranks, int rank) noexcept;
  // Makes the communicator's registrations and operators again on a generation that is not
  // published yet. On failure the generation is useless. Windows follow at the program's first
  // operation.
  ncclResult_t (*replay)(VirtualCommunicator* comm, Generation* generation) noexcept;
  // The generation that calls use from now on (nullptr: none, calls give ncclInvalidUsage). Returns
  // the one before, in which threads may still be: quiesce it before its real communicator is
  // destroyed (not before it is aborted).
  Generation* (*publish)(VirtualCommunicator* comm, Generation* next) noexcept;
  // Waits until no thread is inside a generation that is published no more; false: it took longer.
  bool (*quiesce)(Generation* generation, int64_t timeout_ms) noexcept;
  // Gives the memory back, as soon as no thread is inside. The real communicator is the caller's.
  void (*free_generation)(Generation* generation) noexcept;
  // Stores stop_at (UINT64_MAX: no cut), then orders it before everything that any thread issues
  // after this call; returns `issued` as it is then. The pledge holds when that is < stop_at.
  uint64_t (*pledge)(VirtualCommunicator* comm, uint64_t stop_at) noexcept;
};

// What the core gives to the preloaded library. Every function is noexcept. Exactly when at_cut and
// before_cut come, also for groups, is at the top of shim/virtual_communicator.h.
struct CoreTable {
  uint32_t version;

  // A communicator was asked for. The core keeps the recipe and decides whether the first
  // generation is made by the caller's own call (return 0) or comes with the next epoch's build
  // (return 1: the core has filled *result, after waiting when the communicator is blocking).
  // Made from unique ids: before the real call, with a generation (epoch 0, ranks and rank as
  // asked, real nullptr) already current; for 1 the core publishes its own and frees that one. A
  // child of a split or shrink: once the child is there and its ranks are known (non-blocking: in
  // the GetAsyncError or GroupEnd that sees it); 1 is not allowed then.
  int (*created)(VirtualCommunicator* comm, ncclResult_t* result) noexcept;
  // Destroy or abort was called: cancels a build, waits until no builder uses the communicator.
  void (*closing)(VirtualCommunicator* comm, int aborting) noexcept;
  // The operation about to be issued has index >= comm->stop_at. Called with no lock held; inside a
  // group (site.group_depth > 0) only at the communicator's first use in it. Warms, waits for the
  // decision, swaps: afterwards comm's current generation is the one to use. Not ncclSuccess: the
  // call must return this.
  ncclResult_t (*at_cut)(VirtualCommunicator* comm, CallSite site) noexcept;
  // The operation just issued has index comm->stop_at - 1 (or closed a group that passed stop_at):
  // record the event behind it. Always outside groups.
  void (*before_cut)(VirtualCommunicator* comm, CallSite site) noexcept;
  // created() gave 0 and the caller's own call has then returned ncclSuccess with the communicator
  // there (blocking, outside groups; not for children): what it took of device memory is measured.
  void (*opened)(VirtualCommunicator* comm) noexcept;
  // Why the communicator's generations were given up (nullptr: any communicator's), valid for ever;
  // nullptr when they were not, and NCCL is to be asked.
  const char* (*last_error)(VirtualCommunicator* comm) noexcept;
};

// librewire.so's one entry for the shim. nullptr: it does not start, and has logged the reason.
using CoreStart = const CoreTable* (*)(uint32_t version, const RealNccl* real,
                                       const ShimServices* services) noexcept;
inline constexpr const char* kCoreStartSymbol = "rewire_shim_core_start";

}  // namespace rewire::shim
