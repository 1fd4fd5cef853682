// Executes one collective over the ring's two connections. Owned by the progress thread.
#pragma once

#include <optional>
#include <vector>

#include "tests/simgpu/nccl/connection.h"
#include "tests/simgpu/nccl/ring_steps.h"

namespace simnccl {

class RingRun {
 public:
  RingRun(const CollectiveTask& task, int rank, int nranks, Connection* next, Connection* previous);

  // Advances without waiting.
  ncclResult_t Advance(bool* moved);
  [[nodiscard]] bool done() const { return done_; }

 private:
  void Compute(const RingStep& step);
  void Finish();

  const CollectiveTask task_;
  const Operator op_;
  const int nranks_;
  Connection* const next_;
  Connection* const previous_;
  std::vector<char> scratch_;
  const RingSteps steps_;
  uint64_t at_ = 0;        // the next step to execute
  uint64_t expected_ = 0;  // the next step whose receive is to be queued
  bool done_ = false;
};

// Executes the collective on a communicator of one rank.
void RunAlone(const CollectiveTask& task);

}  // namespace simnccl
