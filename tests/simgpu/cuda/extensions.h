// What the simulated driver has beside NVIDIA's entries, for tests and benchmarks, which find these
// by name. Any thread.
//
// Virtual time: with SIMGPU_PEER_MBPS or SIMGPU_LOCAL_MBPS each stream has a clock of its own, in
// nanoseconds. A copy takes what its bytes take at that speed, a kernel what its launch says, all
// else nothing. Waiting for an event, or for a word that another stream writes, in any process,
// moves the waiting stream's clock to what it was waiting for; cuEventElapsedTime is of this time.
// Copies of different streams do not slow each other.
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
// The same, taking so much virtual time.
CUresult cuSimLaunchTimedKernel(CUstream stream, void (*function)(void*), void* argument,
                                uint64_t nanoseconds) noexcept;
// Waits for the stream, moves its clock to `at_least` if it is behind, and gives it.
CUresult cuSimAdvanceClock(CUstream stream, uint64_t at_least, uint64_t* now) noexcept;
// A kernel that a library brings in C++: a launch with a packed buffer of arguments calls `run`
// with a copy of it, 16-byte aligned, and with the number of blocks in the grid's first dimension.
typedef void (*cuSimKernel)(void* context, const void* arguments, unsigned int blocks);
CUresult cuSimCreateFunction(CUfunction* function, cuSimKernel run, void* context) noexcept;
CUresult cuSimGetCounts(cuSimCounts* counts) noexcept;
}
