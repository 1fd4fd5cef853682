// Physical memory that cuMemCreate made or another process lent. Each memory is its own memory
// file, so that a descriptor means the same bytes in every process, also after this process has
// ended. Guarded by the driver's lock.
#pragma once

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

constexpr size_t kPhysicalGranularity = size_t{2} << 20;

struct PhysicalMemory {
  int fd = -1;
  size_t size = 0;
  CUmemAllocationProp properties{};
  Device* device = nullptr;
  bool imported = false;  // the process that created the memory counts it
  int handles = 0;        // handles returned and not released
  int mappings = 0;
};

// Checks whether this memory is supported; all callers use the same check of the properties.
[[nodiscard]] CUresult CheckProperties(const CUmemAllocationProp* properties)
    REWIRE_REQUIRES(driver_mutex);
// Adds memory with one handle.
[[nodiscard]] CUmemGenericAllocationHandle AddPhysical(PhysicalMemory memory)
    REWIRE_REQUIRES(driver_mutex);
// Returns null if every handle was released, even if mappings keep the memory alive.
[[nodiscard]] PhysicalMemory* FindPhysical(CUmemGenericAllocationHandle handle)
    REWIRE_REQUIRES(driver_mutex);
// Called after one of its counts was decremented: frees the memory if no reference is left.
void DropPhysical(CUmemGenericAllocationHandle handle) REWIRE_REQUIRES(driver_mutex);
// Frees memory that this process had dropped and that other processes no longer use.
void ReclaimLent() REWIRE_REQUIRES(driver_mutex);
// Returns a descriptor for other processes. The memory counts as in use while the descriptor, a
// copy of it or a mapping through it exists anywhere. -1 if the system refuses.
[[nodiscard]] int LendPhysical(const PhysicalMemory& memory);

}  // namespace simgpu
