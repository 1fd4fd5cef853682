// An event holds the marker of its latest record. A wait uses the marker at the time of its call,
// so that a later record never changes an earlier wait. Guarded by the driver's lock.
#pragma once

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  MarkerRef marker;                  // null: never recorded, which counts as passed
  std::shared_ptr<Capture> capture;  // of the latest record; null: it was not captured
};

[[nodiscard]] Event* FindEvent(CUevent handle) REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
