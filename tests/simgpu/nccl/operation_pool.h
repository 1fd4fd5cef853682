// The memory in which NCCL's progress thread keeps its operations: allocated and cleared when the
// first operation uses the network, once per communicator (nccl: proxy.cc allocateArgs). It is what
// makes the first real operation of a communicator slow. Progress thread only.
#pragma once

#include <cstddef>

namespace simnccl {

class OperationPool {
 public:
  OperationPool() = default;
  ~OperationPool();
  OperationPool(const OperationPool&) = delete;
  OperationPool& operator=(const OperationPool&) = delete;

  // Idempotent.
  void Need();

 private:
  void* memory_ = nullptr;
};

}  // namespace simnccl
