// The lines of the protocols LL and LL128, which carry flags among their data
// (src/include/device.h, union ncclLLFifoLine and NCCL_LL128_LINESIZE). Thread-safe.
#pragma once

#include <cstring>

#include "tests/nccl_host/kernels/progress.h"

namespace nccl_host {

// LL: two words of data, each followed by the flag of its step.
struct LLLine {
  uint32_t data1, flag1, data2, flag2;
};
constexpr size_t kLLData = 8;  // bytes of data in a line
// The sender clears whole slots at steps that have all these bits, before the flags repeat
// (NCCL_LL_CLEAN_MASK).
constexpr uint64_t kLLCleaning = 0x7ffffff8;

inline uint32_t LLFlag(uint64_t step) { return static_cast<uint32_t>(step + 1); }

// Returns false if the line has not arrived.
inline bool ReadLine(const LLLine* line, uint32_t flag, uint64_t* data) {
  if (Load(&line->flag1) != flag || Load(&line->flag2) != flag) return false;
  *data = line->data1 | static_cast<uint64_t>(line->data2) << 32;
  return true;
}

inline void WriteLine(LLLine* line, uint64_t data, uint32_t flag) {
  line->data1 = static_cast<uint32_t>(data);
  line->data2 = static_cast<uint32_t>(data >> 32);
  Store(&line->flag1, flag);
  Store(&line->flag2, flag);
}

// LL128: 15 words of data and the flag. Only kernels read the data in a slice of 16 lines, so its
// order there is free; the emulation keeps the data in order.
constexpr size_t kLL128Line = 128;
constexpr size_t kLL128Data = 120;
constexpr size_t kLL128Slice = 16;  // lines

inline bool ReadLine128(const char* line, uint64_t step, char* data) {
  if (Load(reinterpret_cast<const uint64_t*>(line + kLL128Data)) != step + 1) return false;
  std::memcpy(data, line, kLL128Data);
  return true;
}

inline void WriteLine128(char* line, const char* data, uint64_t step) {
  std::memcpy(line, data, kLL128Data);
  Store(reinterpret_cast<uint64_t*>(line + kLL128Data), step + 1);
}

}  // namespace nccl_host
