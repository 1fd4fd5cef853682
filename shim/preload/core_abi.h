// The C boundary between the preloaded library (libc alone: entries, handles, the fast path) and
// the core in librewire.so (recipes, builds, swaps, the agent). The preloaded library opens the
// core with dlopen at the first communicator. Both sides come from one build (version check).
//
// Ownership: VirtualCommunicator and Generation objects belong to the preloaded library's memory
// (shim/preload/virtual_communicator.h, generation.h). The core changes them only by the members
// that these files mark for it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

struct VirtualCommunicator;
struct Generation;
// The table of the real library's pnccl* functions; see shim/preload/real_nccl.h.
struct RealNccl;

inline constexpr uint32_t kCoreAbiVersion = 10;

// The call site of a core function: its stream and the thread's ncclGroup depth (0: no group).
struct CallSite {
  cudaStream_t stream;
  int group_depth;
};

// The preloaded library's services for the core: all work that needs to know which threads are
// inside a communicator. Thread-safe. No lock is held when a call returns.
struct ShimServices {
  // Makes a generation without a communicator: state kOpen, real nullptr. The core passes
  // `&generation->real` to NCCL. Returns nullptr when memory is exhausted.
  Generation* (*new_generation)(uint64_t epoch, int ranks, int rank) noexcept;
  // Replays the communicator's registrations and operators on a generation that is not published
  // yet. After a failure the generation is useless. Windows follow at the program's first
  // operation.
  ncclResult_t (*replay)(VirtualCommunicator* comm, Generation* generation) noexcept;
  // Returns whether the program's first operation on the generation has to register a buffer or a
  // window there.
  bool (*registers)(VirtualCommunicator* comm, const Generation* generation) noexcept;
  // Makes `next` the generation that calls use from now on. With nullptr, calls return
  // ncclInvalidUsage. Returns the previous generation, which threads may still be inside: call
  // quiesce before destroying its real communicator (an abort does not need quiesce).
  Generation* (*publish)(VirtualCommunicator* comm, Generation* next) noexcept;
  // Waits until no thread is inside the generation. Returns false on timeout. Threads may still
  // enter a published generation.
  bool (*quiesce)(Generation* generation, int64_t timeout_ms) noexcept;
  // Frees the memory after the last thread has left. The caller ends the real communicator.
  void (*free_generation)(Generation* generation) noexcept;
  // Stores stop_at (UINT64_MAX: no cut), ordered before all that any thread issues after this call.
  // Returns `issued` at that moment. The pledge holds when the returned value is < stop_at.
  uint64_t (*pledge)(VirtualCommunicator* comm, uint64_t stop_at) noexcept;
  // Returns the number of calls so far that have told the program of a loss.
  uint64_t (*reported_losses)() noexcept;
};

// The core's functions for the preloaded library. Every function is noexcept. The exact calls of
// at_cut and before_cut, also for groups, are specified at the top of
// shim/preload/virtual_communicator.h.
struct CoreTable {
  uint32_t version;

  // Reports a new communicator. The core keeps the recipe and decides how the first
  // generation is made. Return 0: by the caller's own call. Return 1: by the next epoch's build,
  // and the core has filled *result at once: a program makes several communicators before the
  // build. From unique ids: called before the real call, with a generation (epoch 0, ranks and rank
  // as asked, real nullptr) already current. For 1 the core replaces and frees that generation. For
  // a child, and for ncclCommInitAll: called when the communicator exists and its ranks are known
  // (non-blocking: in the GetAsyncError or GroupEnd that sees it); the core must return 0.
  int (*created)(VirtualCommunicator* comm, ncclResult_t* result) noexcept;
  // Reports a destroy or abort: cancels a build and waits until no builder uses the communicator.
  void (*closing)(VirtualCommunicator* comm, int aborting) noexcept;
  // Called before an operation with index >= comm->stop_at is issued. The caller holds no lock. In
  // a group (site.group_depth > 0) only the communicator's first use in the group calls this
  // function. The function warms, waits for the decision and swaps; the caller then uses comm's
  // current generation. The caller must return any result other than ncclSuccess to the program.
  ncclResult_t (*at_cut)(VirtualCommunicator* comm, CallSite site) noexcept;
  // Called after the operation with index comm->stop_at - 1, or after a group that passed stop_at:
  // records the event after that operation. Always called outside groups.
  void (*before_cut)(VirtualCommunicator* comm, CallSite site) noexcept;
  // Returns the free memory of the communicator's device in bytes. 0: unknown. Called before calls
  // in which NCCL takes device memory for a blocking communicator: its creation, and its first
  // operation of a kind, a size class or a peer.
  uint64_t (*free_memory)(VirtualCommunicator* comm) noexcept;
  // NCCL has taken device memory for the communicator since free_memory() returned `free_before`,
  // which was not 0. For a child, free_memory() was called with its parent.
  void (*took_memory)(VirtualCommunicator* comm, uint64_t free_before) noexcept;
  // Returns why the communicator's generations were given up (nullptr: any communicator's); the
  // text is valid until the process ends. Returns nullptr otherwise: ask NCCL.
  const char* (*last_error)(VirtualCommunicator* comm) noexcept;
  // Reports that the communicator has a new pin. Quick.
  void (*pinned)(VirtualCommunicator* comm) noexcept;
  // Waits until the first generation exists of a communicator for which created() has returned 1.
  ncclResult_t (*await_first)(VirtualCommunicator* comm) noexcept;
};

// librewire.so's one entry for the shim. Returns nullptr after a failed start, which is logged.
using CoreStart = const CoreTable* (*)(uint32_t version, const RealNccl* real,
                                       const ShimServices* services) noexcept;
inline constexpr const char* kCoreStartSymbol = "rewire_shim_core_start";

}  // namespace rewire::shim
