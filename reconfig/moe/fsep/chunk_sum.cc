// Loads and launches the kernels of chunk_sum.cu; see chunk_sum.h.
#include "reconfig/moe/fsep/chunk_sum.h"

#include <algorithm>

#include "reconfig/base/cuda_driver.h"

namespace rewire::moe::fsep {

extern const char kChunkSumPtx[];  // the text of chunk_sum.ptx, which the build embeds

namespace {

constexpr unsigned kBlock = 256;
constexpr uint64_t kElementsPerThread = 8;
constexpr uint64_t kMostBlocksPerSum = 64;
constexpr uint64_t kMostSumsAtOnce = 65'535;  // a grid's second dimension

uint64_t Place(Chunk chunk, uint64_t chunk_bytes) {
  return static_cast<uint64_t>(chunk.memory) << 62 | chunk.index * chunk_bytes;
}

}  // namespace

std::vector<uint64_t> SumTable(std::span<const Sum> sums, uint64_t chunk_bytes) {
  std::vector<uint64_t> rows, sources;
  for (const Sum& sum : sums) {
    rows.push_back(Place(sum.to, chunk_bytes));
    rows.push_back(3 * sums.size() + sources.size());
    for (const Chunk& from : sum.from) sources.push_back(Place(from, chunk_bytes));
    rows.push_back(3 * sums.size() + sources.size());
  }
  rows.insert(rows.end(), sources.begin(), sources.end());
  return rows;
}

absl::StatusOr<std::unique_ptr<ChunkSum>> ChunkSum::Load(const CudaDriver& driver, Gradient type) {
  std::unique_ptr<ChunkSum> sum(new ChunkSum(driver));
  CUresult result = driver.ModuleLoadData(&sum->module_, kChunkSumPtx);
  if (result != CUDA_SUCCESS) {
    return absl::InternalError(driver.Describe("cuModuleLoadData", result));
  }
  const char* const name = type == Gradient::kFloat32 ? "rewire_sum_f32" : "rewire_sum_bf16";
  result = driver.ModuleGetFunction(&sum->function_, sum->module_, name);
  if (result == CUDA_SUCCESS) return sum;
  return absl::InternalError(driver.Describe("cuModuleGetFunction", result));
}

ChunkSum::~ChunkSum() {
  if (module_ != nullptr) driver_.ModuleUnload(module_);
}

absl::Status ChunkSum::Launch(CUdeviceptr table, uint64_t sums, uint64_t elements,
                              const MemoryBases& memory, CUstream stream) const {
  const auto across = static_cast<unsigned>(
      std::clamp<uint64_t>(elements / (kBlock * kElementsPerThread), 1, kMostBlocksPerSum));
  const auto down = static_cast<unsigned>(std::min(sums, kMostSumsAtOnce));
  MemoryBases bases = memory;
  void* parameters[] = {&table, &sums, &elements, &bases[0], &bases[1], &bases[2]};
  const CUresult result = driver_.LaunchKernel(function_, across, down, 1, kBlock, 1, 1, 0, stream,
                                               parameters, nullptr);
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(driver_.Describe("cuLaunchKernel", result));
}

}  // namespace rewire::moe::fsep
