// The free memory of a process's device, for `./dev bench memory`: a thread asks the driver again
// and again, and keeps the least answer in a file that memory.py maps. Start() once; thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "reconfig/base/cuda_driver.h"

namespace rewire::bench {

// The file's content, in the host's byte order.
struct FreeMemoryPage {
  std::atomic<uint64_t> wanted;  // written by memory.py: the number of the present round
  std::atomic<uint64_t> round;   // the round to which the rest belongs
  std::atomic<uint64_t> now;     // bytes
  std::atomic<uint64_t> least;   // bytes, since the round began
};

class FreeMemory {
 public:
  // The context must outlive this object. Throws std::runtime_error if the file cannot be made.
  FreeMemory(const std::string& path, const CudaDriver* cuda, CUcontext context);
  ~FreeMemory();
  FreeMemory(const FreeMemory&) = delete;
  FreeMemory& operator=(const FreeMemory&) = delete;

 private:
  void Run();

  const CudaDriver* const cuda_;
  const CUcontext context_;
  FreeMemoryPage* page_ = nullptr;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace rewire::bench
