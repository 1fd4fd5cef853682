// Errors: the thread's last error, and the names of errors, which are the driver's. Thread-safe.
#include "tests/nccl_host/runtime/runtime.h"

namespace nccl_host {
namespace {
thread_local cudaError_t last_error = cudaSuccess;
}  // namespace

cudaError_t Keep(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t Keep(CUresult result) { return Keep(static_cast<cudaError_t>(result)); }

}  // namespace nccl_host

NCCL_HOST_EXPORT cudaError_t cudaGetLastError() {
  const cudaError_t error = nccl_host::last_error;
  nccl_host::last_error = cudaSuccess;
  return error;
}

NCCL_HOST_EXPORT cudaError_t cudaPeekAtLastError() { return nccl_host::last_error; }

NCCL_HOST_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  const char* text = nullptr;
  return cuGetErrorName(static_cast<CUresult>(error), &text) == CUDA_SUCCESS ? text : "cudaError";
}

NCCL_HOST_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  return cuGetErrorString(static_cast<CUresult>(error), &text) == CUDA_SUCCESS ? text
                                                                               : "unknown error";
}
