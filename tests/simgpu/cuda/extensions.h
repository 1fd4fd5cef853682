// The simulated driver's additional entries for tests and benchmarks, which find them by name.
// Thread-safe.
//
// Virtual time: with SIMGPU_PEER_MBPS or SIMGPU_LOCAL_MBPS each stream has its own clock, in
// nanoseconds. A copy takes the time of its bytes at that speed. A kernel takes the time of its
// launch call. All other work takes no time. A stream that waits for an event, or for a word that
// another stream writes, in any process, advances its clock to the time of that event or write.
// cuEventElapsedTime uses virtual time. Copies of different streams do not slow each other.
#pragma once

#include "reconfig/abi/cuda_types.h"

extern "C" {

typedef struct {
  uint64_t allocations;  // of device and page-locked memory, since cuInit
  uint64_t peer_bytes;   // copied between devices or processes
  uint64_t local_bytes;  // copied within a device
} cuSimCounts;

// Runs a function in a stream as a kernel.
CUresult cuSimLaunchKernel(CUstream stream, void (*function)(void*), void* argument) noexcept;
// Like cuSimLaunchKernel, but the kernel takes `nanoseconds` of virtual time.
CUresult cuSimLaunchTimedKernel(CUstream stream, void (*function)(void*), void* argument,
                                uint64_t nanoseconds) noexcept;
// Waits for the stream, advances its clock to at least `at_least`, and returns the clock.
CUresult cuSimAdvanceClock(CUstream stream, uint64_t at_least, uint64_t* now) noexcept;
// A kernel that a library provides in C++. A launch with a packed buffer of arguments calls `run`
// with a 16-byte aligned copy of the buffer and the number of blocks in the grid's first dimension.
typedef void (*cuSimKernel)(void* context, const void* arguments, unsigned int blocks);
CUresult cuSimCreateFunction(CUfunction* function, cuSimKernel run, void* context) noexcept;
CUresult cuSimGetCounts(cuSimCounts* counts) noexcept;
}
