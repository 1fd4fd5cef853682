// Owns memory of the current context's device and frees the memory in the destructor, when the
// context must be current. Thread-compatible.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::moe::fsep {

class DeviceMemory {
 public:
  // An empty object has the address 0.
  DeviceMemory() = default;
  static absl::StatusOr<DeviceMemory> Allocate(const CudaDriver& driver, uint64_t bytes) {
    DeviceMemory memory;
    memory.driver_ = &driver;
    const CUresult result = driver.MemAlloc(&memory.address_, bytes);
    if (result == CUDA_SUCCESS) return memory;
    memory.address_ = 0;
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes for sharded experts: ", driver.Describe("cuMemAlloc", result)));
  }
  ~DeviceMemory() {
    if (address_ != 0) driver_->MemFree(address_);
  }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(address_, other.address_);
    return *this;
  }

  [[nodiscard]] CUdeviceptr address() const { return address_; }

 private:
  const CudaDriver* driver_ = nullptr;
  CUdeviceptr address_ = 0;
};

}  // namespace rewire::moe::fsep
