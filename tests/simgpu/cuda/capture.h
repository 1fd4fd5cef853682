// The capture state of streams and threads. Whether a stream captures, and which calls that
// forbids, is as documented; work in a capturing stream is refused and invalidates the capture.
// Guarded by the driver's lock.
#pragma once

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

struct Capture {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;
  uint64_t id = 0;
};

// For every call that puts work into the stream or waits for it.
[[nodiscard]] CUresult CheckWorkAgainstCapture(Stream* stream) REWIRE_REQUIRES(driver_mutex);
// For calls that may not be made while a capture is under way: allocations and synchronous copies.
// What this thread has exchanged by cuThreadExchangeStreamCaptureMode decides.
[[nodiscard]] CUresult CheckUnsafeCall() REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
