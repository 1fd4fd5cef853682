#include "bench/trainer/device.h"

#include <algorithm>
#include <string>

#include "reconfig/base/status_macros.h"

namespace rewire::trainer {

absl::Status Device::Check(const char* call, CUresult result) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(driver_->Describe(call, result));
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(int local_rank) {
  std::string error;
  std::unique_ptr<Device> d(new Device);
  d->driver_ = CudaDriver::Get(&error);
  if (d->driver_ == nullptr) return absl::FailedPreconditionError(error);
  const CudaDriver& cu = *d->driver_;
  int count = 0;
  REWIRE_RETURN_IF_ERROR(d->Check("cuInit", cu.Init(0)));
  REWIRE_RETURN_IF_ERROR(d->Check("cuDeviceGetCount", cu.DeviceGetCount(&count)));
  if (count < 1) return absl::FailedPreconditionError("the CUDA driver has no device");
  REWIRE_RETURN_IF_ERROR(d->Check("cuDeviceGet", cu.DeviceGet(&d->device_, local_rank % count)));
  REWIRE_RETURN_IF_ERROR(
      d->Check("cuDevicePrimaryCtxRetain", cu.DevicePrimaryCtxRetain(&d->context_, d->device_)));
  REWIRE_RETURN_IF_ERROR(d->Enter());
  REWIRE_RETURN_IF_ERROR(
      d->Check("cuStreamCreate", cu.StreamCreate(&d->stream_, CU_STREAM_NON_BLOCKING)));
  return d;
}

Device::~Device() {
  if (stream_ != nullptr) driver_->StreamDestroy(stream_);
  if (context_ != nullptr) driver_->DevicePrimaryCtxRelease(device_);
}

absl::Status Device::Enter() const {
  return Check("cuCtxSetCurrent", driver_->CtxSetCurrent(context_));
}

absl::Status Device::CopyIn(CUdeviceptr target, const void* source, size_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  return Check("cuMemcpyHtoDAsync", driver_->MemcpyHtoDAsync(target, source, bytes, stream_));
}

absl::Status Device::CopyOut(void* target, CUdeviceptr source, size_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  return Check("cuMemcpyDtoHAsync", driver_->MemcpyDtoHAsync(target, source, bytes, stream_));
}

absl::Status Device::Zero(CUdeviceptr target, size_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  return Check("cuMemsetD8Async", driver_->MemsetD8Async(target, 0, bytes, stream_));
}

absl::Status Device::Synchronize() const {
  return Check("cuStreamSynchronize", driver_->StreamSynchronize(stream_));
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(const Device& device, size_t bytes) {
  DeviceBuffer b;
  b.device_ = &device;
  const CUresult r = device.driver().MemAlloc(&b.pointer_, std::max<size_t>(bytes, 16));
  if (r != CUDA_SUCCESS) {
    return absl::ResourceExhaustedError(device.driver().Describe("cuMemAlloc", r) + " for " +
                                        std::to_string(bytes) + " bytes");
  }
  REWIRE_RETURN_IF_ERROR(device.Zero(b.pointer_, bytes));
  REWIRE_RETURN_IF_ERROR(device.Synchronize());
  return b;
}

DeviceBuffer DeviceBuffer::Adopt(const Device& device, CUdeviceptr pointer) {
  DeviceBuffer b;
  b.device_ = &device;
  b.pointer_ = pointer;
  return b;
}

DeviceBuffer::~DeviceBuffer() {
  if (pointer_ != 0) device_->driver().MemFree(pointer_);
}

}  // namespace rewire::trainer
