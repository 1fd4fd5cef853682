// Page-locked host memory for copies from and to the device. Of the current context.
//
// A copy to pageable memory waits for its stream inside the driver, and holds a lock of the context
// meanwhile (seen in stacks on an H200). If each of several threads waits so for its communicator,
// the threads of two processes can deadlock, with or without Rewire (docs/limits.md).
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "reconfig/base/cuda_driver.h"

namespace rewire::bench {

class PinnedMemory {
 public:
  // Ends the process if there is no memory.
  PinnedMemory(const CudaDriver* cuda, size_t bytes) : cuda_(cuda) {
    if (cuda_->MemHostAlloc(&data_, bytes, 0) == CUDA_SUCCESS) return;
    std::fprintf(stderr, "cuMemHostAlloc: no memory: bytes=%zu\n", bytes);
    std::exit(1);
  }
  ~PinnedMemory() { cuda_->MemFreeHost(data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  [[nodiscard]] char* data() const { return static_cast<char*>(data_); }
  [[nodiscard]] int32_t* word() const { return static_cast<int32_t*>(data_); }

 private:
  const CudaDriver* const cuda_;
  void* data_ = nullptr;
};

}  // namespace rewire::bench
