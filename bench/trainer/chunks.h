// Processes a float array on the device in chunks through page-locked memory. While one chunk is
// processed, the next is copied. Owned by the training thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "bench/trainer/device.h"

namespace rewire::trainer {

enum class ChunkAccess { kRead, kWrite, kUpdate };

// Calls work(index of the first element, values) per chunk; an error ends the loop.
absl::Status ForEachChunk(const Device& device, CUdeviceptr array, uint64_t elements,
                          ChunkAccess access,
                          const std::function<absl::Status(uint64_t, std::span<float>)>& work);

}  // namespace rewire::trainer
