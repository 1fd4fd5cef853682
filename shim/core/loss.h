// Aborts generations in one group, on the loss thread. For ShimCommunicators and Builder.
//
// After the loss of a member, every call that is blocked inside its generations must return.
// Freeing one generation may wait for the kernels of another, so separate aborts would deadlock.
// Thread-safe; the destructor joins the loss thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "reconfig/base/task_queue.h"
#include "shim/core/chain.h"
#include "shim/core/core_counters.h"
#include "shim/core/device.h"
#include "shim/core/nccl_calls.h"
#include "shim/preload/core_abi.h"

namespace rewire::shim {

class Loss {
 public:
  Loss(const NcclCalls* nccl, const ShimServices* services, Device* device, CoreCounters* counters)
      : nccl_(nccl),
        services_(services),
        device_(device),
        counters_(counters),
        queue_("rw-abort") {}

  // Aborts published generations. The threads inside leave before anything is freed. A generation
  // whose creation by the program is under way is interrupted (interruption.h).
  void Abort(std::vector<std::unique_ptr<Link>> links);
  // Aborts generations that were never published, so no thread is inside. Runs on the caller's
  // thread, which must be one of Rewire's.
  void AbortUnused(std::vector<std::unique_ptr<Link>> links);
  // Aborts a never published generation that a builder's thread is inside. Returns at once.
  void Interrupt(std::unique_ptr<Link> link);
  // Runs on the loss thread, after the work posted before.
  void After(std::function<void()> work) { queue_.Post(std::move(work)); }

 private:
  void AbortAndFree(std::vector<std::unique_ptr<Link>> links);
  // Returns false when a thread is still inside one of the generations.
  bool WaitUntilLeft(const std::vector<std::unique_ptr<Link>>& links, bool blocking_too,
                     milliseconds within);

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  TaskQueue queue_;
};

}  // namespace rewire::shim
