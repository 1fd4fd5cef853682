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
struct RealNccl;  // table of the real library's pnccl* functions, shim/real_nccl.h

inline constexpr uint32_t kCoreAbiVersion = 1;

// Where a thread stands when it calls the core: inside an ncclGroup or not.
struct CallSite {
  cudaStream_t stream;
  int group_depth;
};

// What the core gives to the preloaded library. Every function is noexcept.
struct CoreTable {
  uint32_t version;

  // A communicator was asked for. The core keeps the recipe and decides whether the first
  // generation is made by the caller's own call (return 0) or comes with the next epoch's build
  // (return 1: the core has filled *result, after waiting when the communicator is blocking).
  int (*created)(VirtualCommunicator* comm, ncclResult_t* result) noexcept;
  // Destroy or abort was called: cancels a build, waits until no builder uses the communicator.
  void (*closing)(VirtualCommunicator* comm, int aborting) noexcept;
  // The operation about to be issued has index >= comm->stop_at. Called with no lock held, outside
  // groups only. Warms, waits for the decision, swaps: afterwards comm's current generation is the
  // one to use. Not ncclSuccess: the call must return this.
  ncclResult_t (*at_cut)(VirtualCommunicator* comm, CallSite site) noexcept;
  // The operation just issued has index comm->stop_at - 1: record the event behind it.
  void (*before_cut)(VirtualCommunicator* comm, CallSite site) noexcept;
};

// librewire.so's one entry for the shim. nullptr when the versions differ.
using CoreStart = const CoreTable* (*)(uint32_t version, const RealNccl* real) noexcept;
inline constexpr const char* kCoreStartSymbol = "rewire_shim_core_start";

}  // namespace rewire::shim
