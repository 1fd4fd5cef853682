// What the core asks of the CUDA driver: contexts, events, free memory. An interface, so that the
// core's tests can script it; driver_device.h is the real one.
//
// Events and memory belong to the context current on the thread that makes them. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

using DeviceContext = void*;
using DeviceEvent = void*;

class Device {
 public:
  enum class EventState { kDone, kPending, kFailed };

  virtual ~Device() = default;

  // The context current on this thread; nullptr when there is none.
  virtual DeviceContext CurrentContext() = 0;
  // Makes it current on one of our own threads, and takes that thread's allocations out of stream
  // captures that the program makes on others. nullptr: the first device's primary context.
  virtual absl::Status Enter(DeviceContext context) = 0;

  virtual absl::StatusOr<uint64_t> FreeBytes() = 0;
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;

  // A stream of our own, of the lowest priority, that has nothing to do with the legacy one.
  virtual absl::StatusOr<cudaStream_t> MakeStream() = 0;
  virtual void DestroyStream(cudaStream_t stream) = 0;
  // How many blocks of kernels on different streams are resident at once for certain; 0: one kernel
  // may have to wait for another to end.
  virtual unsigned ResidentBlocks() = 0;

  virtual absl::StatusOr<DeviceEvent> MakeEvent() = 0;
  virtual void DestroyEvent(DeviceEvent event) = 0;
  // On the application's thread; never blocks.
  virtual bool Record(DeviceEvent event, cudaStream_t stream) = 0;
  virtual bool MakeWait(cudaStream_t stream, DeviceEvent event) = 0;
  virtual EventState Query(DeviceEvent event) = 0;
  virtual bool Capturing(cudaStream_t stream) = 0;
};

}  // namespace rewire::shim
