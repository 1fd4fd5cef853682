// Builds the generations of one epoch in the background: one after the other, in the given order,
// on a thread of low priority per epoch. For ShimCommunicators.
//
// A build that is cancelled or passes its deadline reports at once. When its thread is inside NCCL
// with a blocking communicator, the builder leaves the thread there: only that thread may end the
// call (interruption.h). The next build then starts on a new thread. The thread that was left
// touches only its own task afterwards. At most kLeft such threads may exist: further builds wait
// until one thread returns, or are refused when NCCL does not let the threads return.
//
// Thread-safe. The destructor waits a bounded time for threads that were left.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/task_queue.h"
#include "reconfig/elastic/protocol/messages.h"
#include "shim/core/build_task.h"
#include "shim/core/chain.h"
#include "shim/core/core_counters.h"
#include "shim/core/device.h"
#include "shim/core/generation_build.h"
#include "shim/core/loss.h"
#include "shim/core/memory_ledger.h"
#include "shim/core/nccl_calls.h"
#include "shim/core/thread_priority.h"
#include "shim/preload/core_abi.h"

namespace rewire::shim {

// Finds a build's communicators and takes built generations. Called on the builder's thread.
class BuildSite {
 public:
  virtual ~BuildSite() = default;
  // Returns nullptr when the communicator is missing; *may_come: its creation may still come.
  virtual std::shared_ptr<Chain> Find(const CommunicatorId& id, bool* may_come) = 0;
  // Called when the whole epoch is built. Returns false if a communicator was closed meanwhile.
  virtual bool Install(const std::shared_ptr<Chain>& chain, std::unique_ptr<Link>* link) = 0;
};

class Builder {
 public:
  // stalled: while a new generation's first operation runs beside the program's own, the program
  // may issue nothing for this long before the two count as blocking each other.
  Builder(const NcclCalls* nccl, const ShimServices* services, Device* device,
          CoreCounters* counters, MemoryLedger* ledger, Loss* loss, BuildSite* site,
          milliseconds stalled);
  ~Builder();

  void Build(Epoch epoch, std::vector<elastic::CommunicatorBuild> builds, Time deadline,
             std::function<void(absl::Status)> done);
  // Stops the build of this epoch (0: of any epoch). Returns at once; done gets the reason.
  void Cancel(Epoch epoch, const std::string& reason) REWIRE_EXCLUDES(mutex_);
  // Stops the build if the build includes this communicator. Waits until the build has ended or its
  // thread was left inside NCCL (at most until `deadline`). False: a thread that is inside NCCL may
  // still use the communicator's device memory.
  [[nodiscard]] bool Release(const CommunicatorId& id, Time deadline) REWIRE_EXCLUDES(mutex_);
  // Wakes a build that waits for a communicator's creation.
  void Arrived() REWIRE_EXCLUDES(mutex_);

 private:
  struct Threads;
  void StartNext() REWIRE_EXCLUDES(mutex_);
  [[nodiscard]] bool Live(const std::shared_ptr<BuildTask>& task) const REWIRE_REQUIRES(mutex_);
  void Stop(const std::shared_ptr<BuildTask>& task, const std::string& reason)
      REWIRE_REQUIRES(mutex_);
  void EndLowPriority(const std::shared_ptr<BuildTask>& task) REWIRE_REQUIRES(mutex_);
  void Hurry(const std::shared_ptr<BuildTask>& task) REWIRE_EXCLUDES(mutex_);
  void Expire(const std::shared_ptr<BuildTask>& task) REWIRE_EXCLUDES(mutex_);
  void Run(const std::shared_ptr<BuildTask>& task) REWIRE_EXCLUDES(mutex_);
  void Report(const BuildTask& task, absl::Status status);
  absl::Status BuildAll(BuildTask* task, LowPriority* priority,
                        std::vector<std::shared_ptr<Chain>>* chains);
  absl::StatusOr<std::shared_ptr<Chain>> Await(BuildTask* task, const CommunicatorId& id);
  // Checks that the generations that are still to be built fit.
  absl::Status CheckMemory(std::span<const elastic::CommunicatorBuild> builds);

  [[nodiscard]] int Left() const;

  const bool interrupts_;  // a thread that was left returns soon
  Device* const device_;
  CoreCounters* const counters_;
  MemoryLedger* const ledger_;
  Loss* const loss_;
  BuildSite* const site_;
  GenerationBuild generations_;
  const std::shared_ptr<Threads> threads_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<BuildTask>> tasks_ REWIRE_GUARDED_BY(mutex_);
  bool running_ REWIRE_GUARDED_BY(mutex_) = false;  // the first task has a thread
  // The priority of that thread. Null: no thread runs, or it was left inside NCCL.
  LowPriority* priority_ REWIRE_GUARDED_BY(mutex_) = nullptr;
  TaskQueue watch_;  // starts threads, and leaves the threads that do not return in time
};

}  // namespace rewire::shim
