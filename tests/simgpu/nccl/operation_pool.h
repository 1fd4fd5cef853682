// The memory of NCCL's progress thread for its operations. It is allocated and cleared once per
// communicator, when the first operation uses the network (nccl: proxy.cc allocateArgs). This
// allocation makes a communicator's first operation slow. Owned by the progress thread.
#pragma once

#include <cstddef>

namespace simnccl {

class OperationPool {
 public:
  OperationPool() = default;
  ~OperationPool();
  OperationPool(const OperationPool&) = delete;
  OperationPool& operator=(const OperationPool&) = delete;

  // Allocates the memory. Idempotent.
  void Need();

 private:
  void* memory_ = nullptr;
};

}  // namespace simnccl
