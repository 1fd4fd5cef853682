// Builds the generations of one epoch in the background: one after the other, in the given order,
// on a thread of low priority per epoch. For ShimCommunicators.
//
// A build that is cancelled or passes its deadline reports at once. When its thread is inside NCCL
// with a blocking communicator, the builder leaves the thread there: only that thread may end the
// call (loss.h). The next build then starts on a new thread. The thread that was left touches only
// its own task afterwards. At most kLeft such threads may exist: further builds wait until one
// thread returns, or are refused when NCCL does not let the threads return.
//
// Thread-safe. The destructor waits a bounded time for threads that were left.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/task_queue.h"
#include "reconfig/elastic/protocol/messages.h"
#include "shim/core/build_task.h"
#include "shim/core/build_thread.h"
#include "shim/core/environment.h"
#include "shim/core/epoch_build.h"
#include "shim/core/loss.h"
#include "shim/core/memory_ledger.h"

namespace rewire::shim {

class Builder {
 public:
  // stalled: while a new generation's first operation runs beside the program's own, the program
  // may issue nothing for this long before the two count as blocking each other.
  Builder(Environment* environment, MemoryLedger* ledger, Loss* loss, BuildSite* site,
          milliseconds stalled);
  ~Builder();

  void Build(Epoch epoch, std::vector<elastic::CommunicatorBuild> builds, Time deadline,
             std::function<void(absl::Status)> done);
  // Stops the build of this epoch (0: of any epoch). Returns at once; done gets the reason.
  void Cancel(Epoch epoch, const std::string& reason) REWIRE_EXCLUDES(mutex_);
  // Stops all builds, also those that are asked for later. Returns at once.
  void End() REWIRE_EXCLUDES(mutex_);
  // Stops the build if the build includes this communicator. Waits until the build has ended or its
  // thread was left inside NCCL (at most until `deadline`).
  void Release(const CommunicatorId& id, Time deadline) REWIRE_EXCLUDES(mutex_);
  // Wakes a build that waits for a communicator's creation.
  void Arrived() REWIRE_EXCLUDES(mutex_);

 private:
  void StartNext() REWIRE_EXCLUDES(mutex_);
  [[nodiscard]] bool Live(const std::shared_ptr<BuildTask>& task) const REWIRE_REQUIRES(mutex_);
  void Stop(const std::shared_ptr<BuildTask>& task, const std::string& reason)
      REWIRE_REQUIRES(mutex_);
  void EndLowPriority(const std::shared_ptr<BuildTask>& task) REWIRE_REQUIRES(mutex_);
  void Hurry(const std::shared_ptr<BuildTask>& task) REWIRE_EXCLUDES(mutex_);
  void Expire(const std::shared_ptr<BuildTask>& task) REWIRE_EXCLUDES(mutex_);
  void Run(const std::shared_ptr<BuildTask>& task) REWIRE_EXCLUDES(mutex_);
  void Report(const BuildTask& task, absl::Status status);

  const bool interrupts_;  // a thread that was left returns soon
  CoreCounters* const counters_;
  Loss* const loss_;
  BuildSite* const site_;
  const std::shared_ptr<ExitGate> exit_gate_;
  EpochBuild epoch_build_;
  const std::shared_ptr<BuildThreads> threads_ = std::make_shared<BuildThreads>();
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<BuildTask>> tasks_ REWIRE_GUARDED_BY(mutex_);
  bool running_ REWIRE_GUARDED_BY(mutex_) = false;  // the first task has a thread
  bool ended_ REWIRE_GUARDED_BY(mutex_) = false;
  // The priority of that thread. Null: no thread runs, or it was left inside NCCL.
  LowPriority* priority_ REWIRE_GUARDED_BY(mutex_) = nullptr;
  TaskQueue watch_;  // starts threads, and leaves the threads that do not return in time
};

}  // namespace rewire::shim
