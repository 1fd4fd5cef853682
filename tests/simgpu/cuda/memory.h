// This process's memory: device allocations, page-locked host memory, memory opened from another
// process, mapped physical memory. Guarded by the driver's lock.
#pragma once

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

enum class MemoryKind { kDevice, kHost, kRegistered, kImported, kMapped };

struct Allocation {
  MemoryKind kind = MemoryKind::kDevice;
  size_t size = 0;
  CUcontext context = nullptr;
  Device* device = nullptr;
  uint64_t id = 0;
  // For imported memory: the mapping, its number of opens, and its handle.
  void* mapping = nullptr;
  size_t mapping_size = 0;
  int references = 0;
  char* stamps = nullptr;  // as large as `mapping`; under a virtual clock
  CUipcMemHandle handle{};
  // For mapped memory: the physical memory, and each device's access.
  CUmemGenericAllocationHandle physical = 0;
  std::map<CUdevice, CUmemAccess_flags> access;

  [[nodiscard]] bool OnDevice() const {
    return kind != MemoryKind::kHost && kind != MemoryKind::kRegistered;
  }
};

// Returns the allocation that contains [address, address + size), or null.
[[nodiscard]] const Allocation* FindAllocation(uintptr_t address, size_t size, uintptr_t* base)
    REWIRE_REQUIRES(driver_mutex);
// Returns whether a device may use all of [address, address + size). The range must lie in one
// allocation, or in adjoining mappings that are accessible to the device.
[[nodiscard]] bool IsAccessible(const Device* device, uintptr_t address, size_t size,
                                CUmemAccess_flags wanted) REWIRE_REQUIRES(driver_mutex);
// Returns whether [address, address + size) overlaps an allocation.
[[nodiscard]] bool Overlaps(uintptr_t address, size_t size) REWIRE_REQUIRES(driver_mutex);
// Returns the location of the virtual time at which a stream last wrote the word at `address`. Null
// without a virtual clock, and for memory that is not a device's.
[[nodiscard]] uint64_t* FindStamp(uintptr_t address) REWIRE_REQUIRES(driver_mutex);
// Finds an allocation by its first byte.
[[nodiscard]] Allocation* FindAllocationAt(uintptr_t address) REWIRE_REQUIRES(driver_mutex);
// Frees an allocation of any kind.
void FreeAllocation(uintptr_t base) REWIRE_REQUIRES(driver_mutex);
// Unmaps the closed mappings. A device closes a mapping of large pages at once. Unmapping the
// equivalent small pages takes milliseconds here, so it is deferred to the next mapping.
void DropClosedMappings() REWIRE_REQUIRES(driver_mutex);
// Opens the device's memory at the first call.
[[nodiscard]] CUresult OpenMemory(Device* device) REWIRE_REQUIRES(driver_mutex);
void FreeMemoryOf(CUcontext context) REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
