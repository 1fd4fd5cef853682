// Whether a stream is being captured into a CUDA graph, asked of the driver that the process has
// already loaded. Any thread.
#pragma once

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

// True when there is a driver to ask. Looks again at every call until there is one.
bool FindDriver() noexcept;
// False without a driver, and for the legacy default stream, which cannot be captured.
bool IsCapturing(cudaStream_t stream) noexcept;

}  // namespace rewire::shim
