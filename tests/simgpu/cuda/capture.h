// Captures of streams, and the calls that a capture forbids to a thread, as the CUDA documentation
// has them. Work in a capturing stream is dropped, because no graph can be launched; a stream that
// waits for an event of the capture joins the capture. A capture may end while such a stream has
// not been joined again, unlike in CUDA. Guarded by the driver's lock.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

struct Capture {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  const CUstreamCaptureMode mode;
  const uint64_t thread;
  const uint64_t id;
  const Stream* const origin;  // the stream that ends the capture
  const CUgraph graph;
  bool ended = false;
};

// Call when a stream ends, or begins to take part in a capture.
void ForgetAnswers() REWIRE_REQUIRES(driver_mutex);
// Returns the capture that the stream takes part in, or nullptr.
[[nodiscard]] Capture* CaptureOf(const Stream* stream) REWIRE_REQUIRES(driver_mutex);
// Called by every entry that puts work into the stream. Enqueue drops the work of a capture.
[[nodiscard]] CUresult CheckWorkAgainstCapture(Stream* stream) REWIRE_REQUIRES(driver_mutex);
// Called by every entry that waits for the stream, which no capture allows.
[[nodiscard]] CUresult CheckWaitAgainstCapture(Stream* stream) REWIRE_REQUIRES(driver_mutex);
// Called by entries that wait for a whole context. No capture of its streams allows this, whatever
// its mode (NVIDIA/TensorRT#2888; the relaxed mode is taken to be the same).
[[nodiscard]] CUresult CheckWaitAgainstCaptures(const Context* context)
    REWIRE_REQUIRES(driver_mutex);
// Called by a wait of the stream for the event. The stream may join the event's capture.
[[nodiscard]] CUresult CheckEventAgainstCapture(Stream* stream, const Event* event)
    REWIRE_REQUIRES(driver_mutex);
// Called by entries that a capture forbids: allocations and synchronous copies. The mode that this
// thread set with cuThreadExchangeStreamCaptureMode decides.
[[nodiscard]] CUresult CheckUnsafeCall() REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
