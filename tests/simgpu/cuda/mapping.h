// Physical memory that is mapped into reserved addresses. Guarded by the driver's lock.
#pragma once

#include "tests/simgpu/cuda/memory.h"

namespace simgpu {

// Leaves the addresses reserved; the physical memory loses a reference.
void Unmap(uintptr_t base, const Allocation& mapping) REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
