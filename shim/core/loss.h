// Aborts generations: all of them in one group, on a thread that is nobody's.
//
// After the loss of a member every call that is blocked inside them must return, and freeing one
// may wait for the kernels of another, so one after the other would deadlock. Any thread may call;
// the destructor joins.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "shim/core/chain.h"
#include "shim/core/core_counters.h"
#include "shim/core/device.h"
#include "shim/core/nccl_calls.h"
#include "shim/core/work_queue.h"
#include "shim/core_abi.h"

namespace rewire::shim {

class Loss {
 public:
  Loss(const NcclCalls* nccl, const ShimServices* services, Device* device, CoreCounters* counters)
      : nccl_(nccl),
        services_(services),
        device_(device),
        counters_(counters),
        queue_("rw-abort") {}

  // Generations that were published. Revokes them first where the library can: that frees nothing,
  // so the threads inside come out before the abort does. before: called first, on that thread.
  void Abort(std::vector<std::unique_ptr<Link>> links, std::function<void()> before = nullptr);
  // Generations that never were published: nobody is inside. On the caller's thread, one of ours.
  void AbortUnused(std::vector<std::unique_ptr<Link>> links);
  // Runs on the same thread, after what was posted before.
  void After(std::function<void()> work) { queue_.Post(std::move(work)); }

 private:
  void AbortAndFree(const std::vector<std::unique_ptr<Link>>& links, bool published);

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  WorkQueue queue_;
};

}  // namespace rewire::shim
