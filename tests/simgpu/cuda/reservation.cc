#include "tests/simgpu/cuda/reservation.h"

#include <algorithm>

#include "tests/simgpu/cuda/context.h"
#include "tests/simgpu/cuda/event.h"
#include "tests/simgpu/cuda/memory.h"
#include "tests/simgpu/cuda/physical_memory.h"
#include "tests/simgpu/cuda/stream.h"

using namespace simgpu;

namespace {

// Reserves `size` bytes of addresses, at `wanted` if these addresses are free and aligned. Returns
// 0 if the system has no such range.
uintptr_t Reserve(size_t size, size_t alignment, uintptr_t wanted) {
  if (wanted % alignment == 0 && wanted != 0) {
    auto* const hint = reinterpret_cast<void*>(wanted);
    void* const got = ::mmap(hint, size, PROT_NONE, kReservedMapping | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED) return reinterpret_cast<uintptr_t>(got);
  }
  if (size > SIZE_MAX - alignment) return 0;
  void* const got = ::mmap(nullptr, size + alignment, PROT_NONE, kReservedMapping, -1, 0);
  if (got == MAP_FAILED) return 0;
  const auto start = reinterpret_cast<uintptr_t>(got);
  const uintptr_t aligned = (start + alignment - 1) / alignment * alignment;
  if (aligned > start) ::munmap(got, aligned - start);
  const size_t rest = start + alignment - aligned;
  if (rest > 0) ::munmap(reinterpret_cast<void*>(aligned + size), rest);
  return aligned;
}

}  // namespace

namespace simgpu {

bool IsReserved(uintptr_t address, size_t size) {
  auto next = State().reservations.upper_bound(address);
  if (next == State().reservations.begin()) return false;
  --next;
  const uintptr_t offset = address - next->first;
  return offset < next->second && size <= next->second - offset;
}

}  // namespace simgpu

SIMGPU_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t size, size_t alignment,
                                           CUdeviceptr wanted, unsigned long long flags) noexcept {
  SIMGPU_ENTER();
  if (pointer == nullptr || size == 0 || size % kPhysicalGranularity != 0 ||
      wanted % kPhysicalGranularity != 0 || (alignment & (alignment - 1)) != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uintptr_t base = Reserve(size, std::max(alignment, kPhysicalGranularity), wanted);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  State().reservations[base] = size;
  *pointer = base;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) noexcept {
  SIMGPU_ENTER();
  const auto found = State().reservations.find(pointer);
  if (found == State().reservations.end() || found->second != size || Overlaps(pointer, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  State().reservations.erase(found);
  ::munmap(reinterpret_cast<void*>(pointer), size);
  return CUDA_SUCCESS;
}
