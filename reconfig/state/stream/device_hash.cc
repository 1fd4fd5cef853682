// Loads and launches the kernel; see device_hash.h.
#include "reconfig/state/stream/device_hash.h"

#include <algorithm>

#include "reconfig/base/cuda_driver.h"

namespace rewire::state {
namespace {

constexpr unsigned kBlock = 256;
constexpr uint64_t kMostBlocks = 256;
// The minimum per thread, so that one addition to the sum per thread costs nothing.
constexpr uint64_t kWordsPerThread = 8;

// The same function as ContentWord() in reconfig/base/hash.h. Thread i takes words i, i + threads,
// ...; unaligned words and the tail are read byte by byte. The driver compiles the kernel for its
// device.
constexpr char kPtx[] = R"(.version 6.0
.target sm_50
.address_size 64

.visible .entry rewire_content_hash(
  .param .u64 p_data,
  .param .u64 p_bytes,
  .param .u64 p_position,
  .param .u64 p_sum)
{
  .reg .pred %p<6>;
  .reg .b16 %h<2>;
  .reg .b32 %r<8>;
  .reg .b64 %d<32>;

  ld.param.u64 %d1, [p_data];
  ld.param.u64 %d2, [p_bytes];
  ld.param.u64 %d3, [p_position];
  ld.param.u64 %d4, [p_sum];
  cvta.to.global.u64 %d1, %d1;
  cvta.to.global.u64 %d4, %d4;

  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  cvt.u64.u32 %d5, %r3;
  mad.wide.u32 %d6, %r1, %r2, %d5;
  mul.wide.u32 %d7, %r4, %r2;
  add.u64 %d8, %d2, 7;
  shr.u64 %d8, %d8, 3;
  mov.u64 %d9, 0;

WORD:
  setp.ge.u64 %p1, %d6, %d8;
  @%p1 bra DONE;
  shl.b64 %d10, %d6, 3;
  add.u64 %d11, %d1, %d10;
  sub.u64 %d12, %d2, %d10;
  and.b64 %d13, %d11, 7;
  setp.ne.u64 %p2, %d13, 0;
  setp.lt.u64 %p3, %d12, 8;
  or.pred %p2, %p2, %p3;
  @%p2 bra BYTES;
  ld.global.u64 %d14, [%d11];
  bra MIX;

BYTES:
  min.u64 %d15, %d12, 8;
  mov.u64 %d14, 0;
  mov.u64 %d16, 0;
  mov.u32 %r5, 0;
BYTE:
  add.u64 %d17, %d11, %d16;
  ld.global.u8 %h1, [%d17];
  cvt.u64.u16 %d18, %h1;
  shl.b64 %d18, %d18, %r5;
  or.b64 %d14, %d14, %d18;
  add.u32 %r5, %r5, 8;
  add.u64 %d16, %d16, 1;
  setp.lt.u64 %p4, %d16, %d15;
  @%p4 bra BYTE;

MIX:
  add.u64 %d19, %d3, %d6;
  add.u64 %d19, %d19, 1;
  mul.lo.u64 %d19, %d19, 0x9E3779B97F4A7C15U;
  xor.b64 %d19, %d19, %d14;
  mov.b64 {%r6, %r7}, %d19;
  mov.b64 %d20, {%r7, %r6};
  mul.wide.u32 %d19, %r6, %r7;
  add.u64 %d19, %d19, %d20;
  add.u64 %d9, %d9, %d19;
  add.u64 %d6, %d6, %d7;
  bra WORD;

DONE:
  red.global.add.u64 [%d4], %d9;
  ret;
}
)";

}  // namespace

std::unique_ptr<DeviceHash> DeviceHash::Load(const CudaDriver& driver, std::string* why) {
  std::unique_ptr<DeviceHash> hash(new DeviceHash(driver));
  CUresult result = driver.ModuleLoadData(&hash->module_, kPtx);
  if (result != CUDA_SUCCESS) {
    *why = driver.Describe("cuModuleLoadData", result);
    return nullptr;
  }
  result = driver.ModuleGetFunction(&hash->function_, hash->module_, "rewire_content_hash");
  if (result == CUDA_SUCCESS) return hash;
  *why = driver.Describe("cuModuleGetFunction", result);
  return nullptr;
}

DeviceHash::~DeviceHash() {
  if (module_ != nullptr) driver_.ModuleUnload(module_);
}

CUresult DeviceHash::Launch(CUdeviceptr data, size_t bytes, uint64_t offset, CUdeviceptr sum,
                            CUstream stream) const {
  const uint64_t words = (bytes + 7) / 8;
  const auto blocks = static_cast<unsigned>(
      std::clamp<uint64_t>(words / (kBlock * kWordsPerThread), 1, kMostBlocks));
  uint64_t length = bytes;
  uint64_t position = offset / 8;
  void* parameters[] = {&data, &length, &position, &sum};
  return driver_.LaunchKernel(function_, blocks, 1, 1, kBlock, 1, 1, 0, stream, parameters,
                              nullptr);
}

}  // namespace rewire::state
