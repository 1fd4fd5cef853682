// Runs the source of a kernel on the CPU, one device thread after the other. Include this file, and
// then the .cu file in a namespace of its own. Suits kernels without barriers and shared memory.
// Thread-compatible.
#pragma once

#include <bit>

struct HostDim {
  unsigned x = 1, y = 1;
};
inline HostDim gridDim, blockDim, blockIdx, threadIdx;

#define __device__
#define __global__

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline void atomicAdd(unsigned long long* sum, unsigned long long value) { *sum += value; }

// Calls `kernel` once for each thread of the grid; blocks have one dimension.
template <typename Kernel>
void LaunchOnHost(HostDim grid, unsigned block, const Kernel& kernel) {
  gridDim = grid;
  blockDim = {block, 1};
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
      for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) kernel();
    }
  }
}
