#include "tests/simgpu/cuda/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/mapping.h"
#include "tests/simgpu/cuda/physical_memory.h"
#include "tests/simgpu/cuda/stream.h"

namespace simgpu {

const Allocation* FindAllocation(uintptr_t address, size_t size, uintptr_t* base) {
  const auto& allocations = State().allocations;
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return nullptr;
  --next;
  const uintptr_t offset = address - next->first;
  if (offset >= next->second.size || size > next->second.size - offset) return nullptr;
  if (base != nullptr) *base = next->first;
  return &next->second;
}

bool IsAccessible(const Device* device, uintptr_t address, size_t size, CUmemAccess_flags wanted) {
  const Allocation* whole = FindAllocation(address, size, nullptr);
  if (whole != nullptr && whole->kind != MemoryKind::kMapped) return true;
  while (size > 0) {
    uintptr_t base = 0;
    const Allocation* mapping = FindAllocation(address, 1, &base);
    if (mapping == nullptr || mapping->kind != MemoryKind::kMapped) return false;
    const auto granted = mapping->access.find(device->ordinal);
    if (granted == mapping->access.end() || (granted->second & wanted) != wanted) return false;
    const size_t here = std::min(size, base + mapping->size - address);
    address += here;
    size -= here;
  }
  return true;
}

uint64_t* FindStamp(uintptr_t address) {
  if (!State().settings.virtual_clock()) return nullptr;
  uintptr_t base = 0;
  const Allocation* allocation = FindAllocation(address, sizeof(uint64_t), &base);
  if (allocation == nullptr) return nullptr;
  if (allocation->kind == MemoryKind::kDevice) return allocation->device->arena.stamp(address);
  if (allocation->stamps == nullptr) return nullptr;
  const uintptr_t skipped = base - reinterpret_cast<uintptr_t>(allocation->mapping);
  return reinterpret_cast<uint64_t*>(allocation->stamps + skipped + (address - base));
}

bool Overlaps(uintptr_t address, size_t size) {
  const auto& allocations = State().allocations;
  const auto next = allocations.lower_bound(address);
  if (next != allocations.end() && next->first - address < size) return true;
  if (next == allocations.begin()) return false;
  const auto previous = std::prev(next);
  return address - previous->first < previous->second.size;
}

CUresult OpenMemory(Device* device) {
  const Settings& settings = State().settings;
  const bool open =
      device->arena.is_open() ||
      device->arena.Open(device->ordinal, settings.memory_bytes, settings.virtual_clock());
  return open ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

Allocation* FindAllocationAt(uintptr_t address) {
  const auto found = State().allocations.find(address);
  return found == State().allocations.end() ? nullptr : &found->second;
}

void FreeAllocation(uintptr_t base) {
  const auto found = State().allocations.find(base);
  const Allocation& allocation = found->second;
  switch (allocation.kind) {
    case MemoryKind::kDevice:
      allocation.device->arena.Free(reinterpret_cast<char*>(base));
      break;
    case MemoryKind::kHost:
      std::free(reinterpret_cast<void*>(base));
      break;
    case MemoryKind::kRegistered:
      break;  // the application owns the memory
    case MemoryKind::kImported:
      State().closed_mappings.emplace_back(allocation.mapping, allocation.mapping_size);
      if (allocation.stamps != nullptr) {
        State().closed_mappings.emplace_back(allocation.stamps, allocation.mapping_size);
      }
      break;
    case MemoryKind::kMapped:
      Unmap(base, allocation);
      break;
  }
  State().allocations.erase(found);
}

void DropClosedMappings() {
  for (const auto& [address, size] : State().closed_mappings) ::munmap(address, size);
  State().closed_mappings.clear();
}

void FreeMemoryOf(CUcontext context) {
  std::vector<uintptr_t> bases;
  for (const auto& [base, allocation] : State().allocations) {
    if (allocation.context == context) bases.push_back(base);
  }
  for (const uintptr_t base : bases) FreeAllocation(base);
  DropClosedMappings();
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t size) noexcept {
  SIMGPU_ENTER();
  if (pointer == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  SIMGPU_TRY(CheckUnsafeCall());
  Device* const device = context->device;
  const CUcontext handle = context->handle;  // the context may be destroyed during the wait
  if (State().settings.alloc_sync) WaitForRunningKernels(device);
  if (FindContext(handle) == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  ReclaimLent();
  const char* memory = device->arena.Allocate(size);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  ++State().counts.allocations;
  Allocation allocation;
  allocation.size = size;
  allocation.context = handle;
  allocation.device = device;
  allocation.id = State().next_id++;
  State().allocations[reinterpret_cast<uintptr_t>(memory)] = allocation;
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) noexcept {
  SIMGPU_ENTER();
  if (pointer == 0) return CUDA_SUCCESS;
  Allocation* allocation = FindAllocationAt(pointer);
  if (allocation == nullptr || allocation->kind != MemoryKind::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_TRY(CheckUnsafeCall());
  if (State().settings.alloc_sync) {
    WaitForRunningKernels(allocation->device);
    if (FindAllocationAt(pointer) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  FreeAllocation(pointer);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total) noexcept {
  SIMGPU_ENTER();
  Context* context = nullptr;
  SIMGPU_TRY(CurrentContext(&context));
  ReclaimLent();
  const Arena& arena = context->device->arena;
  if (free != nullptr) *free = arena.total() - arena.used();
  if (total != nullptr) *total = arena.total();
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size,
                                               CUdeviceptr pointer) noexcept {
  SIMGPU_ENTER();
  uintptr_t start = 0;
  const Allocation* allocation = FindAllocation(pointer, 1, &start);
  if (allocation == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = start;
  if (size != nullptr) *size = allocation->size;
  return CUDA_SUCCESS;
}
