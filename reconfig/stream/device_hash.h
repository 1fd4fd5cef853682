// HashContent() of device memory, computed where the memory lies by a small kernel: a boundary that
// hashes tens of gigabytes must not carry them to the host. An object belongs to one thread and one
// context, which must be current in every call and at the end.
#pragma once

#include <memory>
#include <string>

#include "reconfig/abi/cuda_types.h"

namespace rewire {

struct CudaDriver;

class DeviceHash {
 public:
  // Null, and why, when the driver does not take the kernel.
  static std::unique_ptr<DeviceHash> Load(const CudaDriver& driver, std::string* why);
  ~DeviceHash();
  DeviceHash(const DeviceHash&) = delete;
  DeviceHash& operator=(const DeviceHash&) = delete;

  // In the stream's order: adds the hash of bytes that lie at byte `offset` of their tensor to the
  // 64-bit word at `sum` on the device.
  CUresult Launch(CUdeviceptr data, size_t bytes, uint64_t offset, CUdeviceptr sum,
                  CUstream stream) const;

 private:
  explicit DeviceHash(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver& driver_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace rewire
