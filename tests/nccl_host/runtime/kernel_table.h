/* The table that a build of NCCL's host code gives to the runtime instead of device code, and the
 * one operation that the build needs besides its kernels. Included by the runtime and by the
 * generated sources of a build. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

constexpr uint64_t kRewireKernelTable = 0x5245574952453031;

struct RewireKernelTable {
  uint64_t magic;
  int version;                  /* as ncclGetVersion gives it */
  const char* const* functions; /* names of the device functions, by their numbers */
  size_t function_count;
};

extern "C" {
void** __cudaRegisterFatBinary(void* table);
void __cudaRegisterFatBinaryEnd(void** registered);
void __cudaRegisterFunction(void** registered, const char* address, char* unused, const char* name,
                            int threads, void* tid, void* bid, void* block, void* grid,
                            int* warp_size);
/* target = source * scalar on a stream: a reduction over one rank. */
cudaError_t rewireScaleElements(void* target, const void* source, size_t count, int type,
                                uint64_t scalar, int scalar_is_pointer, cudaStream_t stream);
}
