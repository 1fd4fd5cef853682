// Asks the CUDA driver that the process has already loaded whether a stream is being captured into
// a CUDA graph. For the shim's entries. Thread-safe.
#pragma once

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

// Returns true when a driver answers capture queries. Each call searches again until one is found.
bool FindDriver() noexcept;
// Returns false without a driver, and for the legacy default stream, which cannot be captured.
bool IsCapturing(cudaStream_t stream) noexcept;

}  // namespace rewire::shim
