// The capture state of streams and threads. Captures and the calls that they forbid follow the CUDA
// documentation, except that work in a capturing stream is refused and invalidates the capture.
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

// Called by every entry that puts work into the stream or waits for the stream.
[[nodiscard]] CUresult CheckWorkAgainstCapture(Stream* stream) REWIRE_REQUIRES(driver_mutex);
// Called by entries that a capture forbids: allocations and synchronous copies. The mode that this
// thread set with cuThreadExchangeStreamCaptureMode decides.
[[nodiscard]] CUresult CheckUnsafeCall() REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
