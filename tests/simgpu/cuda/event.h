// An event: the marker of its latest record. A wait takes the marker there was when it was called,
// so that recording again never moves an earlier wait. Guarded by the driver's lock.
#pragma once

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  MarkerRef marker;  // null: never recorded, which counts as passed
};

[[nodiscard]] Event* FindEvent(CUevent handle) REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
