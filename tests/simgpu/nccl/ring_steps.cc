#include "tests/simgpu/nccl/ring_steps.h"

#include <algorithm>

namespace simnccl {

RingSteps::RingSteps(const CollectiveTask& task, int rank, int nranks, size_t chunk_bytes,
                     char* scratch)
    : task_(task), rank_(rank), n_(nranks), element_(task.element()), scratch_(scratch) {
  chunk_ = std::max<size_t>(chunk_bytes / element_, 1);
  loop_elements_ = chunk_;
  if (task.function == Function::kAllReduce) {
    steps_per_loop_ = 2 * n_ - 1;
    loop_elements_ = chunk_ * n_;
    if (task.protocol == Protocol::kLl) {
      steps_per_loop_ = n_;
      loop_elements_ = std::max<size_t>(task.count, 1);
    }
  } else if (task.function == Function::kAllGather || task.function == Function::kReduceScatter) {
    steps_per_loop_ = n_;
  }
  loops_ = (task.count + loop_elements_ - 1) / loop_elements_;
}

size_t RingSteps::LoopCount(uint64_t loop) const {
  return std::min(loop_elements_, task_.count - loop * loop_elements_);
}

RingStep RingSteps::At(uint64_t index) const {
  const uint64_t loop = index / steps_per_loop_;
  const int k = static_cast<int>(index % steps_per_loop_);
  switch (task_.function) {
    case Function::kAllReduce:
      return task_.protocol == Protocol::kLl ? AllReduceLl(k) : AllReduce(loop, k);
    case Function::kReduceScatter:
      return ReduceScatter(loop, k);
    case Function::kAllGather:
      return AllGather(loop, k);
    default:
      return Chain(loop);
  }
}

RingStep RingSteps::AllReduce(uint64_t loop, int k) const {
  // Divides a loop's elements into n pieces. The last, shorter loop has smaller pieces, some of
  // them empty.
  const size_t total = LoopCount(loop);
  const size_t align = std::max<size_t>(16 / element_, 1);
  const size_t even = (total + n_ - 1) / n_;
  const size_t piece = std::min(chunk_, (even + align - 1) / align * align);
  const bool reducing = k < n_;
  const int which = reducing ? Mod(rank_ - 1 - k) : Mod(rank_ - (k - (n_ - 1)));
  const size_t start = std::min(total, piece * which);
  RingStep step;
  step.count = std::min(piece, total - start);
  const size_t offset = (loop * loop_elements_ + start) * element_;
  step.receive = k > 0;
  step.send = k < 2 * n_ - 2;
  if (reducing) step.local = static_cast<const char*>(task_.send) + offset;
  if (k >= n_ - 1) step.store = static_cast<char*>(task_.recv) + offset;
  step.last = k == n_ - 1;
  return step;
}

RingStep RingSteps::AllReduceLl(int k) const {
  RingStep step;
  step.count = task_.count;
  step.receive = k > 0;
  step.send = k < n_ - 1;
  if (k == 0) step.local = static_cast<const char*>(task_.send);
  step.store = scratch_ + Mod(rank_ - k) * task_.count * element_;
  return step;
}

RingStep RingSteps::ReduceScatter(uint64_t loop, int k) const {
  const int which = Mod(rank_ - 1 - k);
  const size_t offset = loop * loop_elements_;
  RingStep step;
  step.count = LoopCount(loop);
  step.receive = k > 0;
  step.send = k < n_ - 1;
  step.local = static_cast<const char*>(task_.send) + (which * task_.count + offset) * element_;
  if (k == n_ - 1) {
    step.store = static_cast<char*>(task_.recv) + offset * element_;
    step.last = true;
  }
  return step;
}

RingStep RingSteps::AllGather(uint64_t loop, int k) const {
  const size_t offset = loop * loop_elements_;
  RingStep step;
  step.count = LoopCount(loop);
  step.receive = k > 0;
  step.send = k < n_ - 1;
  step.store = static_cast<char*>(task_.recv) + (Mod(rank_ - k) * task_.count + offset) * element_;
  if (k == 0) step.local = static_cast<const char*>(task_.send) + offset * element_;
  return step;
}

RingStep RingSteps::Chain(uint64_t loop) const {
  const size_t offset = loop * loop_elements_ * element_;
  RingStep step;
  step.count = LoopCount(loop);
  // A rank that does not use a buffer may pass null for it.
  const auto send = [&] { return static_cast<const char*>(task_.send) + offset; };
  const auto recv = [&] { return static_cast<char*>(task_.recv) + offset; };
  if (task_.function == Function::kBroadcast) {
    // Broadcast: starts at the root and ends before it.
    step.receive = rank_ != task_.root;
    step.send = Mod(rank_ + 1) != task_.root;
    if (!step.receive) step.local = send();
    step.store = recv();
  } else {
    // Reduce: starts after the root and ends at it.
    step.receive = rank_ != Mod(task_.root + 1);
    step.send = rank_ != task_.root;
    step.local = send();
    if (!step.send) {
      step.store = recv();
      step.last = true;
    }
  }
  return step;
}

}  // namespace simnccl
