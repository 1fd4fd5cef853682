// The communicator's tuner plugin, called once per collective by the enqueuing thread.
#pragma once

#include <memory>

#include "tests/simgpu/nccl/task.h"

struct ncclComm;

namespace simnccl {

class Tuner {
 public:
  virtual ~Tuner() = default;
  // Chooses the protocol of a ring collective; an error fails the collective, as in NCCL.
  virtual ncclResult_t Choose(Function function, size_t bytes, int operations,
                              Protocol* protocol) = 0;
};

}  // namespace simnccl
