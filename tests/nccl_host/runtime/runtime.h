// Declarations shared by the files of the CUDA runtime: libcudart.so for NCCL's host code, on the
// simulated driver alone. Every entry is thread-safe. A runtime entry does the same as the driver's
// entry of its name; the runtime keeps the thread's last error.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#define NCCL_HOST_EXPORT extern "C" __attribute__((visibility("default")))

namespace nccl_host {

// Stores an error as the thread's last one. The runtime's numbers are the driver's.
cudaError_t Keep(cudaError_t error);
cudaError_t Keep(CUresult result);

// Makes the device's primary context current; the runtime holds one reference of each.
[[nodiscard]] CUresult UseDevice(int device);
// Uses device 0 if the thread has no context, as every call of the runtime does.
[[nodiscard]] CUresult UseSomeDevice();

inline CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace nccl_host

#define NCCL_HOST_ENTER()                                                             \
  if (const CUresult entered = ::nccl_host::UseSomeDevice(); entered != CUDA_SUCCESS) \
  return ::nccl_host::Keep(entered)
