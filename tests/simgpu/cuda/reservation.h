// Ranges of addresses that the application reserved to map memory into. Guarded by the driver's
// lock.
#pragma once

#include <sys/mman.h>

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

// What the system has at reserved addresses where no memory is mapped.
constexpr int kReservedMapping = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// Whether one reservation contains [address, address + size).
[[nodiscard]] bool IsReserved(uintptr_t address, size_t size) REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
