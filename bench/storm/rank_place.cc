#include "bench/storm/rank_place.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/storm/board.h"

namespace rewire::bench {

int LaunchNumber(const char* program, const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) {
    std::fprintf(stderr, "%s: %s is not set: run it under `rewire run`\n", program, variable);
    std::exit(2);
  }
  return std::atoi(text);
}

const CudaDriver* OpenDevice(const char* program, int device, CUcontext* context) {
  std::string error;
  const CudaDriver* const cuda = CudaDriver::Get(&error);
  CUdevice handle = 0;
  int count = 0;
  const auto failed = [&](const char* call, CUresult result) {
    if (result != CUDA_SUCCESS) error = cuda->Describe(call, result);
    return result != CUDA_SUCCESS;
  };
  if (cuda == nullptr || failed("cuInit", cuda->Init(0)) ||
      failed("cuDeviceGetCount", cuda->DeviceGetCount(&count)) ||
      failed("cuDeviceGet", cuda->DeviceGet(&handle, count == 0 ? device : device % count)) ||
      failed("cuDevicePrimaryCtxRetain", cuda->DevicePrimaryCtxRetain(context, handle))) {
    std::fprintf(stderr, "%s: device %d: %s\n", program, device, error.c_str());
    std::exit(kUnexpected);
  }
  if (device >= count) ::setenv("NCCL_HOSTID", ("rank-" + std::to_string(device)).c_str(), 1);
  return cuda;
}

}  // namespace rewire::bench
