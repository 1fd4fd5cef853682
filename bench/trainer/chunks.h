// Goes over a float array on the device in chunks through page-locked memory: while one chunk is
// worked on, the next is on its way. The training thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "bench/trainer/device.h"

namespace rewire::trainer {

enum class ChunkAccess { kRead, kWrite, kUpdate };

// work(index of the first element, values); an error ends it.
absl::Status ForEachChunk(const Device& device, CUdeviceptr array, uint64_t elements,
                          ChunkAccess access,
                          const std::function<absl::Status(uint64_t, std::span<float>)>& work);

}  // namespace rewire::trainer
