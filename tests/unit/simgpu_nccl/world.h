// The ranks of a communicator as threads of the test. Each rank has a device, a stream and memory.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/simgpu/nccl/api.h"
#include "tests/simgpu/nccl/driver.h"

namespace simnccl {

// The driver calls that only tests make.
struct TestDriver {
  const Driver* d = nullptr;
  int (*StreamCreate)(cudaStream_t*, unsigned) = nullptr;
  int (*StreamDestroy)(cudaStream_t) = nullptr;
  int (*StreamSynchronize)(cudaStream_t) = nullptr;
  int (*StreamQuery)(cudaStream_t) = nullptr;
  int (*MemGetInfo)(size_t*, size_t*) = nullptr;
  static const TestDriver& Get();
};

// One rank: a context on its own device, made current, and a stream. Owned by the thread that made
// it.
class Rank {
 public:
  explicit Rank(int device);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  // Waits for the stream; returns false after the test's timeout.
  [[nodiscard]] bool Sync() const { return SyncStream(stream_); }
  static bool SyncStream(cudaStream_t stream);

  // Returns device memory, freed with the rank.
  void* Alloc(size_t bytes);
  template <typename T>
  T* Put(const std::vector<T>& values) {
    T* memory = static_cast<T*>(Alloc(values.size() * sizeof(T)));
    std::copy(values.begin(), values.end(), memory);
    return memory;
  }

 private:
  int device_;
  CuContext context_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

// Waits until `condition` holds; false after ten seconds.
bool Eventually(const std::function<bool()>& condition);

// Runs `body(rank)` on n threads at once and waits for all.
void OnThreads(int n, const std::function<void(int rank)>& body);

// Also makes a communicator over all threads, and destroys it afterwards.
void OnRanks(int n, const std::function<void(int rank, ncclComm_t comm, Rank& gpu)>& body,
             const ncclConfig_t* config = nullptr);

int CountFds();
int CountThreads();

}  // namespace simnccl

#define ASSERT_NCCL(call) ASSERT_EQ(ncclSuccess, (call)) << ncclGetLastError(nullptr)
#define EXPECT_NCCL(call) EXPECT_EQ(ncclSuccess, (call)) << ncclGetLastError(nullptr)
