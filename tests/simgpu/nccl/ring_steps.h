// A collective as one rank's sequence of ring steps: receive, combine with the own contribution,
// store, send. The steps are a pure function of (task, rank, number of ranks, chunk size). Both
// ends of every connection therefore derive the same messages, and the order of reduction depends
// on nothing else. Pure; thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/simgpu/nccl/task.h"

namespace simnccl {

struct RingStep {
  size_t count = 0;  // elements; 0: no work in this step
  bool receive = false;
  bool send = false;
  const char* local = nullptr;  // this rank's contribution, or null
  char* store = nullptr;        // address of the result, or null
  bool last = false;            // the result is final: an integer average divides now
};

class RingSteps {
 public:
  // Only Protocol::kLl uses `scratch` (nranks times the message).
  RingSteps(const CollectiveTask& task, int rank, int nranks, size_t chunk_bytes, char* scratch);

  [[nodiscard]] uint64_t size() const { return loops_ * steps_per_loop_; }
  [[nodiscard]] RingStep At(uint64_t index) const;

 private:
  [[nodiscard]] RingStep AllReduce(uint64_t loop, int k) const;
  [[nodiscard]] RingStep AllReduceLl(int k) const;
  [[nodiscard]] RingStep ReduceScatter(uint64_t loop, int k) const;
  [[nodiscard]] RingStep AllGather(uint64_t loop, int k) const;
  [[nodiscard]] RingStep Chain(uint64_t loop) const;

  [[nodiscard]] int Mod(int rank) const { return (rank % n_ + n_) % n_; }
  [[nodiscard]] size_t LoopCount(uint64_t loop) const;

  const CollectiveTask& task_;
  const int rank_;
  const int n_;
  const size_t element_;
  char* const scratch_;
  size_t chunk_ = 0;  // elements per message
  size_t loop_elements_ = 0;
  uint64_t loops_ = 0;
  uint64_t steps_per_loop_ = 1;
};

}  // namespace simnccl
