// The request of one API call, checked and with its operator resolved, for a plan. A value type;
// thread-compatible. Buffers are device memory and must be valid until the operation completes.
#pragma once

#include <cstddef>

#include "reconfig/abi/nccl_types.h"
#include "tests/simgpu/nccl/reduction.h"

namespace simnccl {

enum class Function { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };

enum class Protocol {
  kSimple,  // the ring in chunks
  kLl,      // small AllReduces: every rank gets all inputs and reduces them in rank order
};

struct CollectiveTask {
  Function function = Function::kAllReduce;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;  // elements. AllGather: sent per rank. ReduceScatter: received per rank.
  ncclDataType_t type = ncclInt8;
  Operator op;
  int root = 0;
  Protocol protocol = Protocol::kSimple;
  cudaStream_t stream = nullptr;

  [[nodiscard]] size_t element() const { return ElementBytes(type); }
};

struct PeerTask {
  bool sending = false;  // false: receives into `data`
  int peer = 0;          // rank in the communicator
  char* data = nullptr;
  size_t bytes = 0;
  cudaStream_t stream = nullptr;
};

}  // namespace simnccl
