// Page-locked host memory: allocated by the driver or registered by the application. The device
// address is the host address, as with unified addressing. Thread-safe.
#include <cstdlib>

#include "tests/simgpu/cuda/capture.h"
#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

void Add(Context* context, MemoryKind kind, void* pointer, size_t size)
    REWIRE_REQUIRES(driver_mutex) {
  Allocation allocation;
  allocation.kind = kind;
  allocation.size = size;
  allocation.context = context->handle;
  allocation.device = context->device;
  allocation.id = State().next_id++;
  State().allocations[reinterpret_cast<uintptr_t>(pointer)] = allocation;
}

CUresult Free(void* pointer, MemoryKind kind, CUresult unknown) {
  SIMGPU_ENTER();
  const Allocation* allocation = FindAllocationAt(reinterpret_cast<uintptr_t>(pointer));
  if (allocation == nullptr || allocation->kind != kind) return unknown;
  FreeAllocation(reinterpret_cast<uintptr_t>(pointer));
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_EXPORT CUresult cuMemHostAlloc(void** pointer, size_t size, unsigned int flags) noexcept {
  SIMGPU_ENTER();
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pointer == nullptr || size == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  SIMGPU_TRY(CheckUnsafeCall());
  if (State().settings.alloc_sync) WaitForRunningKernels(context->device);
  SIMGPU_TRY(CurrentContext(&context));  // the context may be gone by now
  void* memory = nullptr;
  if (::posix_memalign(&memory, 4096, size) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  ++State().counts.allocations;
  Add(context, MemoryKind::kHost, memory, size);
  *pointer = memory;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemAllocHost_v2(void** pointer, size_t size) noexcept {
  return cuMemHostAlloc(pointer, size, 0);
}

SIMGPU_EXPORT CUresult cuMemFreeHost(void* pointer) noexcept {
  return Free(pointer, MemoryKind::kHost, CUDA_ERROR_INVALID_VALUE);
}

SIMGPU_EXPORT CUresult cuMemHostRegister_v2(void* pointer, size_t size,
                                            unsigned int flags) noexcept {
  SIMGPU_ENTER();
  constexpr unsigned kKnown =
      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
  if (pointer == nullptr || size == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  if (Overlaps(reinterpret_cast<uintptr_t>(pointer), size)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  Add(context, MemoryKind::kRegistered, pointer, size);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemHostUnregister(void* pointer) noexcept {
  return Free(pointer, MemoryKind::kRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

SIMGPU_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device_pointer, void* pointer,
                                                    unsigned int flags) noexcept {
  SIMGPU_ENTER();
  if (device_pointer == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Allocation* allocation = FindAllocation(reinterpret_cast<uintptr_t>(pointer), 1, nullptr);
  if (allocation == nullptr || allocation->OnDevice()) return CUDA_ERROR_INVALID_VALUE;
  *device_pointer = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}
