// The first device of the simulated driver, for the tests of this folder and the process they
// start.
#pragma once

#include <string>

#include "reconfig/base/cuda_driver.h"
#include "reconfig/stream/state_memory.h"

namespace rewire {

// Its primary context, current on this thread; null when there is none.
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

// Never freed: the process ends.
inline StatePlace DeviceMemory(CUcontext context, size_t bytes) {
  std::string error;
  CUdeviceptr memory = 0;
  CudaDriver::Get(&error)->MemAlloc(&memory, bytes);
  return {MemoryKind::kDevice, reinterpret_cast<char*>(memory), context};
}

// What the owner's state holds at a byte of version v.
inline char OwnerByte(size_t at, int version) {
  return static_cast<char>(at * 7 + at / 251 + static_cast<size_t>(version));
}

}  // namespace rewire
