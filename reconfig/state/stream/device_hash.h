// Computes HashContent() of device memory by a small kernel on that device: a boundary that hashes
// tens of gigabytes must not copy them to the host. Owned by one thread and one context, which must
// be current in every call and in the destructor.
#pragma once

#include <memory>
#include <string>

#include "reconfig/abi/cuda_types.h"

namespace rewire {
struct CudaDriver;
}

namespace rewire::state {

class DeviceHash {
 public:
  // Returns nullptr, with the reason in *why, when the driver does not accept the kernel.
  static std::unique_ptr<DeviceHash> Load(const CudaDriver& driver, std::string* why);
  ~DeviceHash();
  DeviceHash(const DeviceHash&) = delete;
  DeviceHash& operator=(const DeviceHash&) = delete;

  // Enqueues a kernel that adds a hash to the 64-bit word at `sum` on the device. `data` is at byte
  // `offset` of its tensor.
  CUresult Launch(CUdeviceptr data, size_t bytes, uint64_t offset, CUdeviceptr sum,
                  CUstream stream) const;

 private:
  explicit DeviceHash(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver& driver_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace rewire::state
