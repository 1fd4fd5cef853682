// Ranges of addresses that the application reserved for mapping memory. Guarded by the driver's
// lock.
#pragma once

#include <sys/mman.h>

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

// The mmap flags of reserved addresses without mapped memory.
constexpr int kReservedMapping = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// Returns whether one reservation contains [address, address + size).
[[nodiscard]] bool IsReserved(uintptr_t address, size_t size) REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
