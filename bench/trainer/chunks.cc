#include "bench/trainer/chunks.h"

#include <algorithm>

#include "reconfig/base/status_macros.h"

namespace rewire::trainer {
namespace {

constexpr uint64_t kChunk = 1 << 18;  // elements: 1 MiB stays in a core's cache

}  // namespace

absl::Status ForEachChunk(const Device& device, CUdeviceptr array, uint64_t elements,
                          ChunkAccess access,
                          const std::function<absl::Status(uint64_t, std::span<float>)>& work) {
  if (elements == 0) return absl::OkStatus();
  REWIRE_ASSIGN_OR_RETURN(const PinnedArray<float> staging,
                          PinnedArray<float>::Allocate(device, 2 * std::min(kChunk, elements)));
  const uint64_t half = staging.size() / 2;
  const auto fetch = [&](uint64_t at, uint64_t turn) {
    if (access == ChunkAccess::kWrite || at >= elements) return absl::OkStatus();
    return device.CopyOut(staging.data() + turn * half, array + at * 4,
                          std::min(half, elements - at) * 4);
  };
  const auto run = [&]() -> absl::Status {
    REWIRE_RETURN_IF_ERROR(fetch(0, 0));
    uint64_t turn = 0;
    for (uint64_t at = 0; at < elements; at += half, turn ^= 1) {
      REWIRE_RETURN_IF_ERROR(device.Synchronize());
      REWIRE_RETURN_IF_ERROR(fetch(at + half, turn ^ 1));
      const std::span<float> values(staging.data() + turn * half, std::min(half, elements - at));
      REWIRE_RETURN_IF_ERROR(work(at, values));
      if (access != ChunkAccess::kRead) {
        REWIRE_RETURN_IF_ERROR(device.CopyIn(array + at * 4, values.data(), values.size() * 4));
      }
    }
    return absl::OkStatus();
  };
  const absl::Status done = run();
  // The staging memory must outlive every copy, also after an error.
  const absl::Status waited = device.Synchronize();
  return done.ok() ? waited : done;
}

}  // namespace rewire::trainer
