// Devices, and each thread's current device. Thread-safe.
#include <cstdio>
#include <mutex>
#include <vector>

#include "tests/nccl_host/runtime/runtime.h"

namespace nccl_host {
namespace {

// Also valid for threads that have exited, because NCCL asks from exit handlers.
thread_local int chosen_device = -1;

CUresult PrimaryContext(int device, CUcontext* context) {
  static std::mutex mutex;
  static auto* const contexts = new std::vector<CUcontext>;
  const std::lock_guard<std::mutex> lock(mutex);
  int count = 0;
  if (const CUresult result = cuInit(0); result != CUDA_SUCCESS) return result;
  if (const CUresult result = cuDeviceGetCount(&count); result != CUDA_SUCCESS) return result;
  if (device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
  contexts->resize(static_cast<size_t>(count));
  CUcontext& held = (*contexts)[static_cast<size_t>(device)];
  if (held == nullptr) {
    const CUresult result = cuDevicePrimaryCtxRetain(&held, device);
    if (result != CUDA_SUCCESS) return result;
  }
  *context = held;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult UseDevice(int device) {
  CUcontext context = nullptr;
  if (const CUresult result = PrimaryContext(device, &context); result != CUDA_SUCCESS) {
    return result;
  }
  chosen_device = device;
  return cuCtxSetCurrent(context);
}

CUresult UseSomeDevice() {
  CUcontext context = nullptr;
  const CUresult result = cuCtxGetCurrent(&context);
  if (result == CUDA_SUCCESS && context != nullptr) return CUDA_SUCCESS;
  return UseDevice(chosen_device < 0 ? 0 : chosen_device);
}

}  // namespace nccl_host

using namespace nccl_host;

NCCL_HOST_EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const CUresult result = cuInit(0); result != CUDA_SUCCESS) return Keep(result);
  return Keep(cuDeviceGetCount(count));
}

NCCL_HOST_EXPORT cudaError_t cudaSetDevice(int device) { return Keep(UseDevice(device)); }

NCCL_HOST_EXPORT cudaError_t cudaGetDevice(int* device) {
  NCCL_HOST_ENTER();
  return Keep(cuCtxGetDevice(device));
}

NCCL_HOST_EXPORT cudaError_t cudaDeviceSynchronize() {
  NCCL_HOST_ENTER();
  return Keep(cuCtxSynchronize());
}

NCCL_HOST_EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                                    int device) {
  NCCL_HOST_ENTER();
  return Keep(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device));
}

NCCL_HOST_EXPORT cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  NCCL_HOST_ENTER();
  return Keep(cuDeviceGetPCIBusId(id, size, device));
}

NCCL_HOST_EXPORT cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  NCCL_HOST_ENTER();
  return Keep(cuDeviceGetByPCIBusId(device, id));
}

NCCL_HOST_EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  NCCL_HOST_ENTER();
  return Keep(cuDeviceCanAccessPeer(can, device, peer));
}

NCCL_HOST_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  NCCL_HOST_ENTER();
  CUcontext context = nullptr;
  if (const CUresult result = PrimaryContext(peer, &context); result != CUDA_SUCCESS) {
    return Keep(result);
  }
  return Keep(cuCtxEnablePeerAccess(context, flags));
}

// The simulated driver has no limits: a stack of any size fits.
NCCL_HOST_EXPORT cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }

NCCL_HOST_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  NCCL_HOST_ENTER();
  return Keep(cuCtxGetStreamPriorityRange(least, greatest));
}

NCCL_HOST_EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  NCCL_HOST_ENTER();
  *properties = cudaDeviceProp{};
  CUresult result = cuDeviceGetName(properties->name, sizeof properties->name, device);
  if (result == CUDA_SUCCESS) result = cuDeviceTotalMem(&properties->totalGlobalMem, device);
  const auto read = [&](CUdevice_attribute attribute, int* value) {
    if (result == CUDA_SUCCESS) result = cuDeviceGetAttribute(value, attribute, device);
  };
  read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &properties->major);
  read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &properties->minor);
  read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &properties->multiProcessorCount);
  read(CU_DEVICE_ATTRIBUTE_WARP_SIZE, &properties->warpSize);
  read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &properties->maxThreadsPerBlock);
  properties->unifiedAddressing = 1;
  properties->canMapHostMemory = 1;
  return Keep(result);
}

NCCL_HOST_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  return Keep(cuDriverGetVersion(version));
}

NCCL_HOST_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
