// The kernel of chunk_sum.h and its launch.
#include "reconfig/moe/fsep/chunk_sum.h"

#include <algorithm>
#include <string>

#include "absl/strings/substitute.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::moe::fsep {
namespace {

constexpr unsigned kBlock = 256;
constexpr uint64_t kElementsPerThread = 8;
constexpr uint64_t kMostBlocksPerSum = 64;
constexpr uint64_t kMostSumsAtOnce = 65'535;  // a grid's second dimension

// Blocks (x, y) take elements x, x + nx, ... (in units of a block) of sums y, y + ny, ... $0: name,
// $1: log2 of an element's bytes, $2: loads %f2 from [%d21], $3: stores %f1 to [%d20]. The sum
// begins as -0, the neutral element of the addition.
constexpr char kKernel[] = R"(.version 6.0
.target sm_50
.address_size 64

.visible .entry $0(
  .param .u64 p_table,
  .param .u64 p_sums,
  .param .u64 p_elements,
  .param .u64 p_shards,
  .param .u64 p_slots,
  .param .u64 p_staging)
{
  .reg .pred %p<4>;
  .reg .b16 %h<2>;
  .reg .b32 %r<10>;
  .reg .f32 %f<3>;
  .reg .b64 %d<22>;

  ld.param.u64 %d1, [p_table];
  ld.param.u64 %d2, [p_sums];
  ld.param.u64 %d3, [p_elements];
  ld.param.u64 %d4, [p_shards];
  ld.param.u64 %d5, [p_slots];
  ld.param.u64 %d6, [p_staging];
  cvta.to.global.u64 %d1, %d1;
  cvta.to.global.u64 %d4, %d4;
  cvta.to.global.u64 %d5, %d5;
  cvta.to.global.u64 %d6, %d6;

  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mov.u32 %r5, %ctaid.y;
  mov.u32 %r6, %nctaid.y;
  cvt.u64.u32 %d7, %r3;
  mad.wide.u32 %d7, %r1, %r2, %d7;
  mul.wide.u32 %d8, %r4, %r2;
  cvt.u64.u32 %d9, %r5;
  cvt.u64.u32 %d10, %r6;

SUM:
  setp.ge.u64 %p1, %d9, %d2;
  @%p1 bra DONE;
  mul.lo.u64 %d11, %d9, 24;
  add.u64 %d11, %d11, %d1;
  ld.global.u64 %d12, [%d11];
  ld.global.u64 %d13, [%d11+8];
  ld.global.u64 %d14, [%d11+16];
  shl.b64 %d13, %d13, 3;
  add.u64 %d13, %d13, %d1;
  shl.b64 %d14, %d14, 3;
  add.u64 %d14, %d14, %d1;
  shr.u64 %d15, %d12, 62;
  setp.eq.u64 %p2, %d15, 0;
  setp.eq.u64 %p3, %d15, 1;
  selp.b64 %d16, %d5, %d6, %p3;
  selp.b64 %d16, %d4, %d16, %p2;
  shl.b64 %d12, %d12, 2;
  shr.u64 %d12, %d12, 2;
  add.u64 %d16, %d16, %d12;
  mov.u64 %d17, %d7;

ELEMENT:
  setp.ge.u64 %p1, %d17, %d3;
  @%p1 bra NEXT;
  shl.b64 %d18, %d17, $1;
  mov.u64 %d19, %d13;
  mov.f32 %f1, 0f80000000;

SOURCE:
  ld.global.u64 %d20, [%d19];
  shr.u64 %d15, %d20, 62;
  setp.eq.u64 %p2, %d15, 0;
  setp.eq.u64 %p3, %d15, 1;
  selp.b64 %d21, %d5, %d6, %p3;
  selp.b64 %d21, %d4, %d21, %p2;
  shl.b64 %d20, %d20, 2;
  shr.u64 %d20, %d20, 2;
  add.u64 %d21, %d21, %d20;
  add.u64 %d21, %d21, %d18;
$2  add.rn.f32 %f1, %f1, %f2;
  add.u64 %d19, %d19, 8;
  setp.lt.u64 %p1, %d19, %d14;
  @%p1 bra SOURCE;

  add.u64 %d20, %d16, %d18;
$3  add.u64 %d17, %d17, %d8;
  bra ELEMENT;

NEXT:
  add.u64 %d9, %d9, %d10;
  bra SUM;

DONE:
  ret;
}
)";

constexpr char kLoadFloat32[] = R"(  ld.global.f32 %f2, [%d21];
)";
constexpr char kStoreFloat32[] = R"(  st.global.f32 [%d20], %f1;
)";
constexpr char kLoadBfloat16[] = R"(  ld.global.u16 %h1, [%d21];
  cvt.u32.u16 %r7, %h1;
  shl.b32 %r7, %r7, 16;
  mov.b32 %f2, %r7;
)";
// Rounds to nearest, ties to even, in integers: cvt.rn.bf16.f32 needs a newer device. NaN stays
// NaN.
constexpr char kStoreBfloat16[] = R"(  mov.b32 %r7, %f1;
  and.b32 %r8, %r7, 0x7fffffff;
  setp.gt.u32 %p2, %r8, 0x7f800000;
  shr.u32 %r8, %r7, 16;
  and.b32 %r9, %r8, 1;
  add.u32 %r9, %r9, 0x7fff;
  add.u32 %r9, %r9, %r7;
  shr.u32 %r9, %r9, 16;
  or.b32 %r8, %r8, 0x40;
  selp.b32 %r9, %r8, %r9, %p2;
  cvt.u16.u32 %h1, %r9;
  st.global.u16 [%d20], %h1;
)";

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
  const bool wide = type == Gradient::kFloat32;
  const char* const name = wide ? "rewire_sum_f32" : "rewire_sum_bf16";
  const std::string text = wide ? absl::Substitute(kKernel, name, 2, kLoadFloat32, kStoreFloat32)
                                : absl::Substitute(kKernel, name, 1, kLoadBfloat16, kStoreBfloat16);
  CUresult result = driver.ModuleLoadData(&sum->module_, text.c_str());
  if (result != CUDA_SUCCESS) {
    return absl::InternalError(driver.Describe("cuModuleLoadData", result));
  }
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
