// Aborts generations: all of them in one group, on the loss thread.
//
// After the loss of a member every call that is blocked inside them must return, and freeing one
// may wait for the kernels of another, so one after the other would deadlock. Thread-safe; the
// destructor joins the loss thread.
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

  // Generations that were published. The threads inside come out before anything is freed. A
  // generation whose creation by the program is under way is interrupted (interruption.h).
  void Abort(std::vector<std::unique_ptr<Link>> links);
  // Generations that never were published: nobody is inside. On the caller's thread, one of ours.
  void AbortUnused(std::vector<std::unique_ptr<Link>> links);
  // A generation that never was published and that a builder's thread is inside. Returns at once.
  void Interrupt(std::unique_ptr<Link> link);
  // Runs on the same thread, after what was posted before.
  void After(std::function<void()> work) { queue_.Post(std::move(work)); }

 private:
  void AbortAndFree(std::vector<std::unique_ptr<Link>> links);
  // False: a thread is still inside one of them.
  bool WaitUntilLeft(const std::vector<std::unique_ptr<Link>>& links, bool blocking_too,
                     milliseconds within);

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  WorkQueue queue_;
};

}  // namespace rewire::shim
