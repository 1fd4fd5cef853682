// Adds chunks on the device: one launch of a small kernel (chunk_sum.cu) computes many sums. Each
// element is added from the first source to the last in 32-bit floats and rounded once. Owned by
// the creating thread; Load()'s context must be current in every call and in the destructor.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/abi/cuda_types.h"
#include "reconfig/moe/fsep/exchange_plan.h"

namespace rewire {
struct CudaDriver;
}

namespace rewire::moe::fsep {

enum class Gradient : uint8_t { kFloat32, kBfloat16 };
[[nodiscard]] constexpr uint32_t BytesOf(Gradient type) {
  return type == Gradient::kFloat32 ? 4 : 2;
}

// Base addresses of shards, slots and staging, indexed by Memory.
using MemoryBases = std::array<CUdeviceptr, 3>;

// Encodes sums as 64-bit words for the kernel. Each sum has three words: its target, the index of
// its first source in the table, and the index after its last source. The sources follow the sums.
// The word of a target or source has the Memory in the two highest bits and the byte offset in the
// other bits.
[[nodiscard]] std::vector<uint64_t> SumTable(std::span<const Sum> sums, uint64_t chunk_bytes);

class ChunkSum {
 public:
  // `driver` must outlive the object.
  static absl::StatusOr<std::unique_ptr<ChunkSum>> Load(const CudaDriver& driver, Gradient type);
  ~ChunkSum();
  ChunkSum(const ChunkSum&) = delete;
  ChunkSum& operator=(const ChunkSum&) = delete;

  // Computes, in stream order, `sums` sums of a table on the device, with `elements` elements each.
  absl::Status Launch(CUdeviceptr table, uint64_t sums, uint64_t elements,
                      const MemoryBases& memory, CUstream stream) const;

 private:
  explicit ChunkSum(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver& driver_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace rewire::moe::fsep
