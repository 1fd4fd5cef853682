// Builds the generations of one epoch in the background: one after the other, in the given order,
// on one thread of low priority.
//
// At the deadline, or when cancelled, the communicator being built is aborted, so that a peer that
// never comes holds nobody, and everything built for the epoch with it. Any thread may call; the
// destructor joins.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/transition/messages.h"
#include "shim/core/chain.h"
#include "shim/core/core_counters.h"
#include "shim/core/device.h"
#include "shim/core/loss.h"
#include "shim/core/memory_ledger.h"
#include "shim/core/nccl_calls.h"
#include "shim/core/warm_up.h"
#include "shim/core/work_queue.h"
#include "shim/core_abi.h"

namespace rewire::shim {

// Where the builder finds communicators and puts what it has built. Called on the builder's thread.
class BuildSite {
 public:
  virtual ~BuildSite() = default;
  // nullptr: not there (yet: *may_come).
  virtual std::shared_ptr<Chain> Find(const CommunicatorId& id, bool* may_come) = 0;
  // All of the epoch is built. False: one of the communicators was closed meanwhile.
  virtual bool Install(const std::shared_ptr<Chain>& chain, std::unique_ptr<Link>* link) = 0;
};

class Builder {
 public:
  // stalled: how long the program may issue nothing while a new generation's first operation runs
  // beside its own, before the two count as in each other's way.
  Builder(const NcclCalls* nccl, const ShimServices* services, Device* device,
          CoreCounters* counters, MemoryLedger* ledger, Loss* loss, BuildSite* site,
          milliseconds stalled);
  ~Builder();

  void Build(Epoch epoch, std::vector<CommunicatorBuild> builds, Time deadline,
             std::function<void(absl::Status)> done);
  // Stops the build of this epoch (0: of any). Returns at once; done gets the reason.
  void Cancel(Epoch epoch, const std::string& reason) REWIRE_EXCLUDES(mutex_);
  // Stops the build if it is to build this communicator, and waits until the builder's thread does
  // not use it any more (at most until `deadline`).
  void Release(const CommunicatorId& id, Time deadline) REWIRE_EXCLUDES(mutex_);
  // A communicator was created that a build may be waiting for.
  void Arrived() REWIRE_EXCLUDES(mutex_);

 private:
  struct Task;
  void Run(const std::shared_ptr<Task>& task) REWIRE_EXCLUDES(mutex_);
  absl::Status BuildAll(Task* task, std::vector<std::unique_ptr<Link>>* links,
                        std::vector<std::shared_ptr<Chain>>* chains);
  absl::StatusOr<std::shared_ptr<Chain>> Await(Task* task, const CommunicatorId& id)
      REWIRE_EXCLUDES(mutex_);
  absl::Status CheckMemory(const Task& task);
  absl::Status BuildOne(Task* task, Chain* chain, const CommunicatorBuild& build,
                        std::unique_ptr<Link>* out);
  absl::Status Connect(Task* task, Chain* chain, const CommunicatorBuild& build, Link* link);
  absl::Status RunBeside(Task* task, Chain* chain, Link* link, void* scratch);
  absl::Status AwaitBeside(Task* task, Chain* chain, DeviceEvent done);
  absl::Status Settle(Task* task, ncclComm_t comm);
  [[nodiscard]] bool Live(const std::shared_ptr<Task>& task) const REWIRE_REQUIRES(mutex_);
  void Stop(const std::shared_ptr<Task>& task, const std::string& reason) REWIRE_REQUIRES(mutex_);
  void Expire(const std::shared_ptr<Task>& task) REWIRE_EXCLUDES(mutex_);
  absl::Status Stopped(Task* task) REWIRE_EXCLUDES(mutex_);
  void LowerPriority();

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  MemoryLedger* const ledger_;
  Loss* const loss_;
  BuildSite* const site_;
  const milliseconds stalled_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Task>> tasks_ REWIRE_GUARDED_BY(mutex_);  // the first is under way
  std::optional<int> program_niceness_;  // builder's thread only; set once lowered
  WorkQueue watch_;                      // aborts what the builder is stuck in
  WorkQueue queue_;
};

}  // namespace rewire::shim
