// The device that this process drives, its one stream, and memory on it. The stream is owned by the
// training thread; allocating and freeing memory is thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::trainer {

class Device {
 public:
  // Takes device local_rank modulo the number of devices.
  static absl::StatusOr<std::unique_ptr<Device>> Open(int local_rank);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const CudaDriver& driver() const { return *driver_; }
  [[nodiscard]] CUdevice ordinal() const { return device_; }
  [[nodiscard]] CUstream stream() const { return stream_; }
  // Makes the context current in a thread other than the one that opened it.
  absl::Status Enter() const;

  absl::Status CopyIn(CUdeviceptr target, const void* source, size_t bytes) const;
  absl::Status CopyOut(void* target, CUdeviceptr source, size_t bytes) const;
  absl::Status Zero(CUdeviceptr target, size_t bytes) const;
  absl::Status Synchronize() const;

 private:
  Device() = default;
  absl::Status Check(const char* call, CUresult result) const;

  const CudaDriver* driver_ = nullptr;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

// Device memory, initially zero. An empty buffer still has an address.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static absl::StatusOr<DeviceBuffer> Allocate(const Device& device, size_t bytes);
  // Takes over memory from Release() or cuMemAlloc.
  static DeviceBuffer Adopt(const Device& device, CUdeviceptr pointer);
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~DeviceBuffer();

  [[nodiscard]] CUdeviceptr at(size_t offset = 0) const { return pointer_ + offset; }
  [[nodiscard]] void* data() const {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(pointer_));
  }
  [[nodiscard]] CUdeviceptr Release() { return std::exchange(pointer_, 0); }

 private:
  const Device* device_ = nullptr;
  CUdeviceptr pointer_ = 0;
};

// Page-locked host memory, so that asynchronous copies are really asynchronous.
template <typename T>
class PinnedArray {
 public:
  PinnedArray() = default;
  static absl::StatusOr<PinnedArray> Allocate(const Device& device, size_t count) {
    PinnedArray out;
    out.driver_ = &device.driver();
    void* p = nullptr;
    const CUresult r = out.driver_->MemHostAlloc(&p, std::max<size_t>(count, 1) * sizeof(T),
                                                 CU_MEMHOSTALLOC_PORTABLE);
    if (r != CUDA_SUCCESS) {
      return absl::ResourceExhaustedError(out.driver_->Describe("cuMemHostAlloc", r));
    }
    out.data_ = static_cast<T*>(p);
    out.count_ = count;
    return out;
  }
  PinnedArray(PinnedArray&& other) noexcept { *this = std::move(other); }
  PinnedArray& operator=(PinnedArray&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~PinnedArray() {
    if (data_ != nullptr) driver_->MemFreeHost(data_);
  }
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] size_t size() const { return count_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  const CudaDriver* driver_ = nullptr;
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace rewire::trainer
