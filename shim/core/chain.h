// The generations of one virtual communicator as the core keeps them: the one in use, the one built
// for the next epoch, and where the communicator stands on the way from one to the other.
//
// Made at the communicator's creation, held by shared_ptr, so that a thread waiting at a cut may
// outlive the application's destroy. Its mutex is never held across a call into NCCL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "reconfig/base/mutex.h"
#include "reconfig/transition/world.h"
#include "shim/core/device.h"
#include "shim/virtual_communicator.h"

namespace rewire::shim {

// One generation with what belongs to it alone. Freed by whoever destroys or aborts it.
struct Link {
  Generation* generation = nullptr;  // nullptr: the application has destroyed it
  CommunicatorId id;
  Epoch epoch = 0;
  uint32_t ranks = 0;
  uint32_t rank = 0;
  bool blocking = true;
  bool warmed = false;  // has run a real operation already: none is needed before the cut
  DeviceContext context = nullptr;
  // Recorded behind the last operation of the generation before this one. Made and freed with this
  // one, so that a swap makes nothing; the link before only looks at it.
  DeviceEvent end_of_previous = nullptr;
  DeviceEvent end = nullptr;  // the following link's end_of_previous, once it is known
  bool end_recorded = false;
  std::unique_ptr<Link> after;  // in a list of links
};

enum class Stop : uint8_t {
  kNone,        // operations go straight through
  kNotEntered,  // a joiner's: built, but its epoch has not come
  kUndecided,   // pledged: no operation at or beyond the warm index before the decision
  kWarm,        // decided: the operation at the warm index is preceded by the tiny one
  kCut,         // warmed: the operation at the cut goes to the next generation
};

struct Chain {
  Chain(VirtualCommunicator* communicator, DeviceContext device_context)
      : comm(communicator),
        id(communicator->id),
        blocking(communicator->recipe.blocking),
        context(device_context) {}

  VirtualCommunicator* const comm;
  const CommunicatorId id;
  const bool blocking;
  const DeviceContext context;

  Mutex mutex;
  uint32_t ranks REWIRE_GUARDED_BY(mutex) = 0;
  uint32_t rank REWIRE_GUARDED_BY(mutex) = 0;
  CondVar changed;
  Stop stop REWIRE_GUARDED_BY(mutex) = Stop::kNone;
  Epoch epoch REWIRE_GUARDED_BY(mutex) = 0;  // of the cut under way
  Cut cut REWIRE_GUARDED_BY(mutex);
  uint64_t host_waits REWIRE_GUARDED_BY(mutex) = 0;  // during this cut
  // nullptr: lost, closed, or a joiner that is not built yet.
  std::unique_ptr<Link> current REWIRE_GUARDED_BY(mutex);
  std::unique_ptr<Link> next REWIRE_GUARDED_BY(mutex);
  // Swapped at a boundary: the first operation afterwards waits, on its stream, for this event of
  // current's.
  DeviceEvent wait_first REWIRE_GUARDED_BY(mutex) = nullptr;
  // Device memory of the tiny warm operation; from the first build to the end.
  void* scratch REWIRE_GUARDED_BY(mutex) = nullptr;
  bool awaits_build REWIRE_GUARDED_BY(mutex) = false;  // its first generation comes with a Build
  bool lost REWIRE_GUARDED_BY(mutex) = false;
  const char* lost_why REWIRE_GUARDED_BY(mutex) = nullptr;  // kept for ever
  bool closing REWIRE_GUARDED_BY(mutex) = false;            // the application destroys it
  // The application's thread is inside NCCL with `next`, or polls `current`, without the mutex.
  bool inside REWIRE_GUARDED_BY(mutex) = false;
};

}  // namespace rewire::shim
