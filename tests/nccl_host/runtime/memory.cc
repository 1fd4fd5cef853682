// Device and host memory, copies and fills, and attributes of addresses. Thread-safe.
#include "tests/nccl_host/runtime/runtime.h"

using namespace nccl_host;

NCCL_HOST_EXPORT cudaError_t cudaMalloc(void** pointer, size_t size) {
  NCCL_HOST_ENTER();
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  return Keep(cuMemAlloc(reinterpret_cast<CUdeviceptr*>(pointer), size));
}

NCCL_HOST_EXPORT cudaError_t cudaFree(void* pointer) {
  NCCL_HOST_ENTER();
  return pointer == nullptr ? cudaSuccess : Keep(cuMemFree(Address(pointer)));
}

// A pool's memory is ordinary memory here. cudaFreeAsync waits for the stream before it frees: NCCL
// frees memory that its work no longer uses.
NCCL_HOST_EXPORT cudaError_t cudaMallocAsync(void** pointer, size_t size, cudaStream_t) {
  return cudaMalloc(pointer, size);
}

NCCL_HOST_EXPORT cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t size, cudaMemPool_t,
                                                     cudaStream_t) {
  return cudaMalloc(pointer, size);
}

NCCL_HOST_EXPORT cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  NCCL_HOST_ENTER();
  if (const CUresult result = cuStreamSynchronize(stream); result != CUDA_SUCCESS) {
    return Keep(result);
  }
  return cudaFree(pointer);
}

NCCL_HOST_EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  static char only;
  *pool = reinterpret_cast<cudaMemPool_t>(&only);
  return cudaSuccess;
}

NCCL_HOST_EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }

NCCL_HOST_EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}

NCCL_HOST_EXPORT cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned int flags) {
  NCCL_HOST_ENTER();
  return Keep(cuMemHostAlloc(pointer, size, flags));
}

NCCL_HOST_EXPORT cudaError_t cudaFreeHost(void* pointer) {
  NCCL_HOST_ENTER();
  return pointer == nullptr ? cudaSuccess : Keep(cuMemFreeHost(pointer));
}

NCCL_HOST_EXPORT cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned int flags) {
  NCCL_HOST_ENTER();
  return Keep(cuMemHostRegister(pointer, size, flags));
}

NCCL_HOST_EXPORT cudaError_t cudaHostUnregister(void* pointer) {
  NCCL_HOST_ENTER();
  return Keep(cuMemHostUnregister(pointer));
}

NCCL_HOST_EXPORT cudaError_t cudaHostGetDevicePointer(void** device, void* host,
                                                      unsigned int flags) {
  NCCL_HOST_ENTER();
  return Keep(cuMemHostGetDevicePointer(reinterpret_cast<CUdeviceptr*>(device), host, flags));
}

NCCL_HOST_EXPORT cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  NCCL_HOST_ENTER();
  return Keep(cuMemGetInfo(free, total));
}

NCCL_HOST_EXPORT cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t size,
                                             cudaMemcpyKind, cudaStream_t stream) {
  NCCL_HOST_ENTER();
  return Keep(cuMemcpyAsync(Address(target), Address(source), size, stream));
}

NCCL_HOST_EXPORT cudaError_t cudaMemcpy(void* target, const void* source, size_t size,
                                        cudaMemcpyKind) {
  NCCL_HOST_ENTER();
  return Keep(cuMemcpy(Address(target), Address(source), size));
}

#if CUDART_VERSION >= 13000
NCCL_HOST_EXPORT cudaError_t cudaMemcpyBatchAsync(void* const* targets, const void* const* sources,
                                                  const size_t* sizes, size_t count,
                                                  cudaMemcpyAttributes*, size_t*, size_t,
                                                  cudaStream_t stream) {
  for (size_t i = 0; i < count; ++i) {
    const cudaError_t error =
        cudaMemcpyAsync(targets[i], sources[i], sizes[i], cudaMemcpyDefault, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
#endif

NCCL_HOST_EXPORT cudaError_t cudaMemset(void* target, int value, size_t size) {
  NCCL_HOST_ENTER();
  return Keep(cuMemsetD8(Address(target), static_cast<unsigned char>(value), size));
}

NCCL_HOST_EXPORT cudaError_t cudaMemsetAsync(void* target, int value, size_t size,
                                             cudaStream_t stream) {
  NCCL_HOST_ENTER();
  return Keep(cuMemsetD8Async(Address(target), static_cast<unsigned char>(value), size, stream));
}

NCCL_HOST_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                                      const void* pointer) {
  NCCL_HOST_ENTER();
  *attributes = cudaPointerAttributes{};
  auto* const address = const_cast<void*>(pointer);
  unsigned int type = 0;
  if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Address(pointer)) !=
      CUDA_SUCCESS) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;
    attributes->hostPointer = address;
    return cudaSuccess;
  }
  const bool on_host = type == CU_MEMORYTYPE_HOST;
  attributes->type = on_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->devicePointer = address;
  attributes->hostPointer = on_host ? address : nullptr;
  return Keep(cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    Address(pointer)));
}

NCCL_HOST_EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  NCCL_HOST_ENTER();
  return Keep(cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), Address(pointer)));
}

NCCL_HOST_EXPORT cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle,
                                                  unsigned int flags) {
  NCCL_HOST_ENTER();
  CUipcMemHandle same{};
  static_assert(sizeof same == sizeof handle);
  __builtin_memcpy(&same, &handle, sizeof same);
  return Keep(cuIpcOpenMemHandle(reinterpret_cast<CUdeviceptr*>(pointer), same, flags));
}

NCCL_HOST_EXPORT cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  NCCL_HOST_ENTER();
  return Keep(cuIpcCloseMemHandle(Address(pointer)));
}
