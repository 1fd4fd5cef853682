#include "tests/simgpu/nccl/ring_run.h"

#include <cstring>

#include "tests/simgpu/nccl/error.h"

namespace simnccl {

RingRun::RingRun(const CollectiveTask& task, int rank, int nranks, Connection* next,
                 Connection* previous)
    : task_(task),
      op_(Resolve(task.op, task.type)),
      nranks_(nranks),
      next_(next),
      previous_(previous),
      scratch_(task.protocol == Protocol::kLl ? nranks * task.count * task.element() : 0),
      steps_(task_, rank, nranks, next->slot_bytes(), scratch_.data()) {}

ncclResult_t RingRun::Advance(bool* moved) {
  SIMNCCL_TRY(previous_->Progress(moved));
  for (;;) {
    // Receives are announced ahead of their execution, one for each free slot.
    for (; expected_ < steps_.size() && previous_->HasFreeSlot(); ++expected_) {
      const RingStep step = steps_.At(expected_);
      if (step.receive && step.count > 0) previous_->Queue(step.count * task_.element());
    }
    if (at_ == steps_.size()) break;
    const RingStep step = steps_.At(at_);
    if (step.count > 0) {
      if (step.receive && !previous_->Arrived()) {
        bool arrived = false;
        SIMNCCL_TRY(previous_->Progress(&arrived));
        if (!arrived) break;
        *moved = true;
        continue;
      }
      if (step.send && !next_->HasFreeSlot()) {
        bool freed = false;
        SIMNCCL_TRY(next_->Progress(&freed));
        if (!freed) break;
        *moved = true;
        continue;
      }
      Compute(step);
      if (step.send) SIMNCCL_TRY(next_->Progress(moved));
    }
    ++at_;
    *moved = true;
  }
  SIMNCCL_TRY(next_->Progress(moved));
  if (!done_ && at_ == steps_.size() && next_->Idle()) {
    Finish();
    done_ = true;
    *moved = true;
  }
  return ncclSuccess;
}

void RingRun::Compute(const RingStep& step) {
  const size_t bytes = step.count * task_.element();
  char* out = step.send ? next_->NextSlot() : step.store;
  const char* in = step.receive ? previous_->Front() : nullptr;
  if (in == nullptr) {
    Scale(task_.type, op_, out, step.local, step.count);
  } else if (step.local == nullptr) {
    std::memcpy(out, in, bytes);
  } else if (op_.scaled) {
    // The received slot is ours until it is popped: the arrived data is combined with the scaled
    // contribution.
    Scale(task_.type, op_, out, step.local, step.count);
    Combine(task_.type, op_.kind, out, in, out, step.count);
  } else {
    Combine(task_.type, op_.kind, out, in, step.local, step.count);
  }
  if (step.last) Divide(task_.type, op_, out, step.count);
  if (step.store != nullptr && step.store != out) std::memcpy(step.store, out, bytes);
  if (step.receive) previous_->Pop();
  if (step.send) next_->Queue(bytes);
}

void RingRun::Finish() {
  if (task_.protocol != Protocol::kLl) return;
  const size_t bytes = task_.count * task_.element();
  std::memcpy(task_.recv, scratch_.data(), bytes);
  for (int r = 1; r < nranks_; ++r) {
    Combine(task_.type, op_.kind, task_.recv, task_.recv, scratch_.data() + r * bytes, task_.count);
  }
  Divide(task_.type, op_, task_.recv, task_.count);
}

void RunAlone(const CollectiveTask& task) {
  const Operator op = Resolve(task.op, task.type);
  Scale(task.type, op, task.recv, task.send, task.count);
}

}  // namespace simnccl
