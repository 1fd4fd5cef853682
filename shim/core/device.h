// The core's interface to the CUDA driver: contexts, events, free memory. The core's tests script
// this interface; device.cc implements it on the real driver, for entry/core_entry.cc.
//
// Events and memory belong to the context current on the thread that makes them. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/abi/nccl_types.h"

namespace rewire {
struct CudaDriver;
}  // namespace rewire

namespace rewire::shim {

using DeviceContext = void*;
using DeviceEvent = void*;

class Device {
 public:
  enum class EventState { kDone, kPending, kFailed };

  virtual ~Device() = default;

  // Returns the context current on this thread, or nullptr.
  virtual DeviceContext CurrentContext() = 0;
  // Returns the context in which the program uses the device: this thread's current context if it
  // is one of the device, and otherwise the primary context. nullptr after a failure.
  virtual DeviceContext ContextOf(int device) = 0;
  // Makes the context current on one of the program's threads. nullptr: no context.
  virtual void MakeCurrent(DeviceContext context) = 0;
  // Makes the context current on one of Rewire's threads, and excludes that thread's allocations
  // from stream captures that the program makes on other threads. nullptr: the first device's
  // primary context.
  virtual absl::Status Enter(DeviceContext context) = 0;

  virtual absl::StatusOr<uint64_t> FreeBytes() = 0;
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;

  // Copy between host and device memory, in the stream's order. On return the host's memory may be
  // used again: Read() waits for the stream. Return whether the copy began.
  virtual bool Write(void* to, std::span<const uint8_t> from, cudaStream_t stream) = 0;
  virtual bool Read(const void* from, std::span<uint8_t> to, cudaStream_t stream) = 0;

  // Makes a stream of lowest priority that does not synchronise with the legacy stream.
  virtual absl::StatusOr<cudaStream_t> MakeStream() = 0;
  virtual void DestroyStream(cudaStream_t stream) = 0;
  // Returns how many blocks of kernels on different streams are certainly resident at once. 0: one
  // kernel may have to wait until another kernel ends.
  virtual unsigned ResidentBlocks() = 0;

  virtual absl::StatusOr<DeviceEvent> MakeEvent() = 0;
  virtual void DestroyEvent(DeviceEvent event) = 0;
  // Called on the application's thread; never blocks.
  virtual bool Record(DeviceEvent event, cudaStream_t stream) = 0;
  // Returns whether the driver refuses the stream, as after its destruction. Call only where it has
  // refused an event on it: a driver need not check a handle.
  virtual bool Destroyed(cudaStream_t stream) = 0;
  // While the stream is captured into a CUDA graph, the graph waits for the event at each launch.
  // The event must then outlive the graph.
  virtual bool MakeWait(cudaStream_t stream, DeviceEvent event) = 0;
  virtual EventState Query(DeviceEvent event) = 0;
  // Returns whether a CUDA graph capture forbids to record an event on the stream.
  virtual bool Capturing(cudaStream_t stream) = 0;
};

// Makes a context current on one of the program's threads while the object exists. A thread may use
// a communicator of a device that is not current on the thread.
class InContext {
 public:
  InContext(Device* device, DeviceContext context)
      : device_(device),
        before_(context != nullptr ? device->CurrentContext() : nullptr),
        changed_(context != nullptr && before_ != context) {
    if (changed_) device_->MakeCurrent(context);
  }
  ~InContext() {
    if (changed_) device_->MakeCurrent(before_);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  Device* const device_;
  const DeviceContext before_;
  const bool changed_;
};

// Returns the device of this process's CUDA driver. The driver table must outlive the device.
std::unique_ptr<Device> DeviceOf(const CudaDriver* driver);

}  // namespace rewire::shim
