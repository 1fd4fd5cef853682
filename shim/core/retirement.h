// Destroys generations that nobody uses any more, in the background and well after the cut.
//
// A generation is kept until its last operation has completed on this member, every member is in
// the next epoch (Retire), and REWIRE_RETIRE_MS more have passed: destroying right after the cut
// disturbs the first operations behind it. All ranks destroy in the same order. Any thread; the
// work is done on one thread of its own, which the destructor joins.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "reconfig/base/mutex.h"
#include "shim/core/chain.h"
#include "shim/core/core_counters.h"
#include "shim/core/device.h"
#include "shim/core/nccl_calls.h"
#include "shim/core/work_queue.h"
#include "shim/core_abi.h"

namespace rewire::shim {

class Retirement {
 public:
  Retirement(const NcclCalls* nccl, const ShimServices* services, Device* device,
             CoreCounters* counters, milliseconds after)
      : nccl_(nccl),
        services_(services),
        device_(device),
        counters_(counters),
        after_(after),
        queue_("rw-retire") {}

  // A generation that was swapped out. Never blocks and allocates nothing: called at the cut.
  void Add(std::unique_ptr<Link> link) REWIRE_EXCLUDES(mutex_);
  // Destroys those older than the epoch; done is called when there are none left.
  void Retire(Epoch epoch, std::function<void()> done);
  // Everything not destroyed yet, to be aborted.
  std::vector<std::unique_ptr<Link>> TakeAll() REWIRE_EXCLUDES(mutex_);

 private:
  struct Batch {
    Epoch epoch = 0;
    std::function<void()> done;
    bool settled = false;  // the last operations have completed
  };
  void Continue(const std::shared_ptr<Batch>& batch);
  [[nodiscard]] bool Pending(Epoch epoch) REWIRE_EXCLUDES(mutex_);
  std::unique_ptr<Link> TakeFirst(Epoch epoch) REWIRE_EXCLUDES(mutex_);
  void Destroy(std::unique_ptr<Link> link);
  void DestroyGeneration(const Link& link, bool on_device);

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  const milliseconds after_;
  Mutex mutex_;
  std::unique_ptr<Link> links_ REWIRE_GUARDED_BY(mutex_);  // a list, newest first
  WorkQueue queue_;                                        // last: joined first
};

}  // namespace rewire::shim
