// Loads and launches the kernel of device_hash.cu; see device_hash.h.
#include "reconfig/state/stream/device_hash.h"

#include <algorithm>

#include "reconfig/base/cuda_driver.h"

namespace rewire::state {

extern const char kDeviceHashPtx[];  // the text of device_hash.ptx, which the build embeds

namespace {

constexpr unsigned kBlock = 256;
constexpr uint64_t kMostBlocks = 256;
// The minimum per thread, so that one addition to the sum per thread costs nothing.
constexpr uint64_t kWordsPerThread = 8;

}  // namespace

std::unique_ptr<DeviceHash> DeviceHash::Load(const CudaDriver& driver, std::string* why) {
  std::unique_ptr<DeviceHash> hash(new DeviceHash(driver));
  CUresult result = driver.ModuleLoadData(&hash->module_, kDeviceHashPtx);
  if (result != CUDA_SUCCESS) {
    *why = driver.Describe("cuModuleLoadData", result);
    return nullptr;
  }
  result = driver.ModuleGetFunction(&hash->function_, hash->module_, "rewire_content_hash");
  if (result == CUDA_SUCCESS) return hash;
  *why = driver.Describe("cuModuleGetFunction", result);
  return nullptr;
}

DeviceHash::~DeviceHash() {
  if (module_ != nullptr) driver_.ModuleUnload(module_);
}

CUresult DeviceHash::Launch(CUdeviceptr data, size_t bytes, uint64_t offset, CUdeviceptr sum,
                            CUstream stream) const {
  const uint64_t words = (bytes + 7) / 8;
  const auto blocks = static_cast<unsigned>(
      std::clamp<uint64_t>(words / (kBlock * kWordsPerThread), 1, kMostBlocks));
  uint64_t length = bytes;
  uint64_t position = offset / 8;
  void* parameters[] = {&data, &length, &position, &sum};
  return driver_.LaunchKernel(function_, blocks, 1, 1, kBlock, 1, 1, 0, stream, parameters,
                              nullptr);
}

}  // namespace rewire::state
