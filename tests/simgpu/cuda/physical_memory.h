// Physical memory that cuMemCreate made or another process lent: a memory file of its own, so that
// a descriptor of it means the same bytes in every process, also after this one has gone. Guarded
// by the driver's lock.
#pragma once

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

constexpr size_t kPhysicalGranularity = size_t{2} << 20;

struct PhysicalMemory {
  int fd = -1;
  size_t size = 0;
  CUmemAllocationProp properties{};
  Device* device = nullptr;
  bool imported = false;  // counted in the process that created it
  int handles = 0;        // given out and not released
  int mappings = 0;
};

// Whether this memory can be had; what it should be like is checked alike by all who ask.
[[nodiscard]] CUresult CheckProperties(const CUmemAllocationProp* properties)
    REWIRE_REQUIRES(driver_mutex);
// With one handle given out.
[[nodiscard]] CUmemGenericAllocationHandle AddPhysical(PhysicalMemory memory)
    REWIRE_REQUIRES(driver_mutex);
// Null where every handle was released, even if the memory lives on in mappings.
[[nodiscard]] PhysicalMemory* FindPhysical(CUmemGenericAllocationHandle handle)
    REWIRE_REQUIRES(driver_mutex);
// After one of its counts went down: frees it if nobody is left.
void DropPhysical(CUmemGenericAllocationHandle handle) REWIRE_REQUIRES(driver_mutex);
// Frees what this process had dropped while others used it, and they no longer do.
void ReclaimLent() REWIRE_REQUIRES(driver_mutex);
// A descriptor for others. While it, a copy of it or a mapping through it exists anywhere, the
// memory counts as in use. -1 where the system refuses.
[[nodiscard]] int LendPhysical(const PhysicalMemory& memory);

}  // namespace simgpu
