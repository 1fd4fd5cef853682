#include "tests/simgpu/cuda/mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/physical_memory.h"
#include "tests/simgpu/cuda/reservation.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

// Returns the first bytes of the mappings that make up [address, address + size); none if the range
// is not made up of whole mappings.
std::vector<uintptr_t> WholeMappings(uintptr_t address, size_t size) REWIRE_REQUIRES(driver_mutex) {
  std::vector<uintptr_t> bases;
  while (size > 0) {
    const Allocation* mapping = FindAllocationAt(address);
    if (mapping == nullptr || mapping->kind != MemoryKind::kMapped || mapping->size > size) {
      return {};
    }
    bases.push_back(address);
    address += mapping->size;
    size -= mapping->size;
  }
  return bases;
}

// Returns the process's page protection, the union of all devices' access: all devices run on the
// CPU.
int Protection(const Allocation& mapping) {
  int granted = 0;
  for (const auto& [device, flags] : mapping.access) granted |= flags;
  return (granted == CU_MEM_ACCESS_FLAGS_PROT_NONE ? PROT_NONE : PROT_READ) |
         (granted == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : PROT_NONE);
}

CUresult Grant(uintptr_t base, Allocation* mapping, std::span<const CUmemAccessDesc> access)
    REWIRE_REQUIRES(driver_mutex) {
  const int before = Protection(*mapping);
  for (const CUmemAccessDesc& one : access) mapping->access[one.location.id] = one.flags;
  const int after = Protection(*mapping);
  if (before == after) return CUDA_SUCCESS;
  const PhysicalMemory& memory = State().physical[mapping->physical];
  // As with an IPC handle, another process's memory is mapped as a whole. This process's own memory
  // is faulted in at its first use, as any allocation.
  const int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE | (memory.imported ? MAP_POPULATE : 0);
  void* const at = reinterpret_cast<void*>(base);
  if (::mmap(at, mapping->size, after, flags, memory.fd, 0) != MAP_FAILED) return CUDA_SUCCESS;
  Say("cuMemSetAccess of %zu bytes: %s", mapping->size, std::strerror(errno));
  return CUDA_ERROR_MAP_FAILED;
}

CUresult CheckAccess(const CUmemLocation& location, int flags) REWIRE_REQUIRES(driver_mutex) {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (FindDevice(location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                 flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

namespace simgpu {

void Unmap(uintptr_t base, const Allocation& mapping) {
  void* const at = reinterpret_cast<void*>(base);
  if (::mmap(at, mapping.size, PROT_NONE, kReservedMapping | MAP_FIXED, -1, 0) == MAP_FAILED) {
    Say("cuMemUnmap of %zu bytes: %s", mapping.size, std::strerror(errno));
  }
  --State().physical[mapping.physical].mappings;
  DropPhysical(mapping.physical);
}

}  // namespace simgpu

SIMGPU_EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                                CUmemGenericAllocationHandle handle,
                                unsigned long long flags) noexcept {
  SIMGPU_ENTER();
  PhysicalMemory* memory = FindPhysical(handle);
  if (memory == nullptr || size == 0 || size > memory->size || offset != 0 || flags != 0 ||
      pointer % kPhysicalGranularity != 0 || size % kPhysicalGranularity != 0 ||
      !IsReserved(pointer, size) || Overlaps(pointer, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++memory->mappings;
  Allocation mapping;
  mapping.kind = MemoryKind::kMapped;
  mapping.size = size;
  mapping.device = memory->device;
  mapping.id = State().next_id++;
  mapping.physical = handle;
  State().allocations[pointer] = mapping;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) noexcept {
  SIMGPU_ENTER();
  const std::vector<uintptr_t> bases = WholeMappings(pointer, size);
  if (bases.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const uintptr_t base : bases) FreeAllocation(base);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size,
                                      const CUmemAccessDesc* access, size_t count) noexcept {
  SIMGPU_ENTER();
  const std::vector<uintptr_t> bases = WholeMappings(pointer, size);
  if (bases.empty() || access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) SIMGPU_TRY(CheckAccess(access[i].location, access[i].flags));
  for (const uintptr_t base : bases) {
    SIMGPU_TRY(Grant(base, FindAllocationAt(base), {access, count}));
  }
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                      CUdeviceptr pointer) noexcept {
  SIMGPU_ENTER();
  const Allocation* mapping = FindAllocation(pointer, 1, nullptr);
  if (flags == nullptr || location == nullptr || mapping == nullptr ||
      mapping->kind != MemoryKind::kMapped) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_TRY(CheckAccess(*location, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  const auto found = mapping->access.find(location->id);
  *flags = found == mapping->access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->second;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                   void* address) noexcept {
  SIMGPU_ENTER();
  const Allocation* mapping = FindAllocation(reinterpret_cast<uintptr_t>(address), 1, nullptr);
  if (handle == nullptr || mapping == nullptr || mapping->kind != MemoryKind::kMapped) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++State().physical[mapping->physical].handles;
  *handle = mapping->physical;
  return CUDA_SUCCESS;
}
