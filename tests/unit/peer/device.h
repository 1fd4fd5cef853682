// Opens the first device of the simulated driver and allocates its memory. For the tests in
// tests/unit/peer and tests/unit/held_device, and for the process peer_owner. Thread-safe.
#pragma once

#include <string>

#include "reconfig/base/cuda_driver.h"
#include "reconfig/state/stream/state_memory.h"

namespace rewire::state {

// Makes the device's primary context current on this thread and returns it; null if there is no
// device.
inline CUcontext UseFirstDevice() {
  std::string error;
  const CudaDriver* const driver = CudaDriver::Get(&error);
  CUcontext context = nullptr;
  if (driver == nullptr || driver->Init(0) != CUDA_SUCCESS ||
      driver->DevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      driver->CtxSetCurrent(context) != CUDA_SUCCESS) {
    return nullptr;
  }
  return context;
}

// Allocates device memory. The memory is never freed, because the test process ends soon.
inline StatePlace DeviceMemory(CUcontext context, size_t bytes) {
  std::string error;
  CUdeviceptr memory = 0;
  CudaDriver::Get(&error)->MemAlloc(&memory, bytes);
  return {MemoryKind::kDevice, reinterpret_cast<char*>(memory), context};
}

// Maps `pieces` allocations, which can be exported to other processes, into one address range.
// Returns the range; its data is null after a failure.
inline StatePlace MappedMemory(CUcontext context, size_t bytes, size_t pieces) {
  std::string error;
  const CudaDriver& driver = *CudaDriver::Get(&error);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  constexpr size_t kGranule = 2 << 20;
  const size_t piece = (bytes / pieces / kGranule + 1) * kGranule;
  CUdeviceptr begin = 0;
  bool ok = driver.MemAddressReserve(&begin, piece * pieces, 0, 0, 0) == CUDA_SUCCESS;
  for (size_t i = 0; i < pieces && ok; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    ok = driver.MemCreate(&handle, piece, &properties, 0) == CUDA_SUCCESS &&
         driver.MemMap(begin + i * piece, piece, 0, handle, 0) == CUDA_SUCCESS &&
         driver.MemRelease(handle) == CUDA_SUCCESS;
  }
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ok = ok && driver.MemSetAccess(begin, piece * pieces, &access, 1) == CUDA_SUCCESS;
  return {MemoryKind::kDevice, ok ? reinterpret_cast<char*>(begin) : nullptr, context};
}

// Returns the expected byte at offset `at` of the owner's state of version `version`.
inline char OwnerByte(size_t at, int version) {
  return static_cast<char>(at * 7 + at / 251 + static_cast<size_t>(version));
}

}  // namespace rewire::state
