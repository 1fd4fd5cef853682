// Attributes of an address: cuPointerGetAttribute and cuPointerGetAttributes. Thread-safe.
#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

// If `allocation` is null, the address is unknown and the attribute's zero is written.
CUresult Write(void* data, CUpointer_attribute attribute, const Allocation* allocation,
               uintptr_t base, CUdeviceptr pointer) {
  const bool known = allocation != nullptr;
  const bool on_device = known && allocation->OnDevice();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = known ? allocation->context : nullptr;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) =
          !known ? 0u : unsigned{on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST};
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = known ? pointer : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (on_device) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(data) = known ? reinterpret_cast<void*>(pointer) : nullptr;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(data) = known ? allocation->id : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = known ? allocation->device->ordinal : -2;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = known ? base : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(data) = known ? allocation->size : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(data) = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<bool*>(data) = known && allocation->kind == MemoryKind::kDevice;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<bool*>(data) = known;
      return CUDA_SUCCESS;
  }
  Say("pointer attribute %d is not simulated", static_cast<int>(attribute));
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

SIMGPU_EXPORT CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                             CUdeviceptr pointer) noexcept {
  SIMGPU_ENTER();
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t base = 0;
  const Allocation* allocation = FindAllocation(pointer, 1, &base);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Write(data, attribute, allocation, base, pointer);
}

SIMGPU_EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes,
                                              void** data, CUdeviceptr pointer) noexcept {
  SIMGPU_ENTER();
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t base = 0;
  const Allocation* allocation = FindAllocation(pointer, 1, &base);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER && allocation != nullptr &&
        allocation->OnDevice()) {
      *static_cast<void**>(data[i]) = nullptr;  // unlike the single query, this query does not fail
      continue;
    }
    SIMGPU_TRY(Write(data[i], attributes[i], allocation, base, pointer));
  }
  return CUDA_SUCCESS;
}
