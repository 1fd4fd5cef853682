// What memory this process has: device allocations, page-locked host memory, memory opened from
// another process, mapped physical memory. Guarded by the driver's lock.
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
  // Of imported memory: what was mapped, how often it is open, and the handle it came from.
  void* mapping = nullptr;
  size_t mapping_size = 0;
  int references = 0;
  char* stamps = nullptr;  // as large as `mapping`; under a virtual clock
  CUipcMemHandle handle{};
  // Of mapped memory: the physical memory, and what each device may do with it.
  CUmemGenericAllocationHandle physical = 0;
  std::map<CUdevice, CUmemAccess_flags> access;

  [[nodiscard]] bool OnDevice() const {
    return kind != MemoryKind::kHost && kind != MemoryKind::kRegistered;
  }
};

// The allocation that contains [address, address + size); null where none does.
[[nodiscard]] const Allocation* FindAllocation(uintptr_t address, size_t size, uintptr_t* base)
    REWIRE_REQUIRES(driver_mutex);
// Whether a device may use all of [address, address + size): it lies in one allocation, or in
// mappings that adjoin and are accessible to it.
[[nodiscard]] bool IsAccessible(const Device* device, uintptr_t address, size_t size,
                                CUmemAccess_flags wanted) REWIRE_REQUIRES(driver_mutex);
// Whether [address, address + size) touches an allocation.
[[nodiscard]] bool Overlaps(uintptr_t address, size_t size) REWIRE_REQUIRES(driver_mutex);
// Where it is kept at which virtual time the word at `address` was last written by a stream; null
// without a virtual clock, and for memory that is not a device's.
[[nodiscard]] uint64_t* FindStamp(uintptr_t address) REWIRE_REQUIRES(driver_mutex);
// By its first byte.
[[nodiscard]] Allocation* FindAllocationAt(uintptr_t address) REWIRE_REQUIRES(driver_mutex);
// Frees one, whatever its kind.
void FreeAllocation(uintptr_t base) REWIRE_REQUIRES(driver_mutex);
// A device closes a mapping of large pages at once; taking down as many small ones as stand for
// them here would cost milliseconds, so that is left for the next time that something is mapped.
void DropClosedMappings() REWIRE_REQUIRES(driver_mutex);
// Makes the device's memory usable, once.
[[nodiscard]] CUresult OpenMemory(Device* device) REWIRE_REQUIRES(driver_mutex);
void FreeMemoryOf(CUcontext context) REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
