// Implements Device on the CUDA driver of this process. For core_entry.cc. Thread-safe.
#pragma once

#include "reconfig/base/cuda_driver.h"
#include "shim/core/device.h"

namespace rewire::shim {

class DriverDevice : public Device {
 public:
  // The driver table must outlive this object.
  explicit DriverDevice(const CudaDriver* driver) : driver_(driver) {}

  DeviceContext CurrentContext() override;
  absl::Status Enter(DeviceContext context) override;
  absl::StatusOr<uint64_t> FreeBytes() override;
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* memory) override;
  absl::StatusOr<cudaStream_t> MakeStream() override;
  void DestroyStream(cudaStream_t stream) override;
  unsigned ResidentBlocks() override;
  absl::StatusOr<DeviceEvent> MakeEvent() override;
  void DestroyEvent(DeviceEvent event) override;
  bool Record(DeviceEvent event, cudaStream_t stream) override;
  bool MakeWait(cudaStream_t stream, DeviceEvent event) override;
  EventState Query(DeviceEvent event) override;
  bool Capturing(cudaStream_t stream) override;

 private:
  [[nodiscard]] absl::Status Check(const char* call, CUresult result) const;

  const CudaDriver* const driver_;
};

}  // namespace rewire::shim
