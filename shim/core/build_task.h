// One Builder::Build() call: its communicators, its reason to stop, and whether its thread is
// inside NCCL. For Builder, which stops the task, and for the task's own thread. A thread that was
// left inside NCCL outlives the builder. Thread-safe.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/mutex.h"
#include "reconfig/elastic/protocol/messages.h"
#include "shim/core/chain.h"

namespace rewire::shim {

class BuildTask {
 public:
  using Links = std::vector<std::unique_ptr<Link>>;
  // A build that takes longer has probably found no idle processor on this host.
  static constexpr seconds kYields{5};

  BuildTask(Epoch epoch_of, std::vector<elastic::CommunicatorBuild> builds_of, Time deadline_of,
            std::function<void(absl::Status)> done_of)
      : epoch(epoch_of),
        builds(std::move(builds_of)),
        deadline(deadline_of),
        late_from(Now() + std::min<Duration>(kYields, (deadline_of - Now()) / 2)),
        done(std::move(done_of)) {}

  const Epoch epoch;
  const std::vector<elastic::CommunicatorBuild> builds;
  const Time deadline;
  const Time late_from;  // from then on the task does not yield to the program
  const std::function<void(absl::Status)> done;

  // Stops the task with kCancelled. The first reason stays.
  void Stop(const std::string& reason) REWIRE_EXCLUDES(mutex_);
  // Returns OK while the task may continue. The deadline also stops the task: kDeadlineExceeded.
  absl::Status Stopped() REWIRE_EXCLUDES(mutex_);
  // Waits until Stop or Wake, at most until `until`.
  void Wait(Time until) REWIRE_EXCLUDES(mutex_);
  void Wake() REWIRE_EXCLUDES(mutex_);

  // The generations made so far, in order. Owned by the task, for the caller of Leave.
  Link* Add(std::unique_ptr<Link> link) REWIRE_EXCLUDES(mutex_);
  Links TakeLinks() REWIRE_EXCLUDES(mutex_);

  // Runs a call with these links that a peer may keep inside NCCL. All are blocking, or none is.
  // The status is not OK when the task was stopped before the call, or when the thread was left:
  // Left() distinguishes the two cases.
  absl::Status InNccl(std::span<Link* const> links, ncclResult_t* result,
                      const std::function<ncclResult_t()>& call) REWIRE_EXCLUDES(mutex_);
  // True: the thread must return and may use nothing but this object.
  bool Left() REWIRE_EXCLUDES(mutex_);

  struct Abandoned {
    Links inside;
    Links built;
  };
  // Leaves the thread inside NCCL and takes its generations. nullopt: the thread is not inside
  // NCCL, or is inside with a non-blocking communicator, and will see the stop by itself.
  std::optional<Abandoned> Leave() REWIRE_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  CondVar changed_;
  absl::Status stopped_ REWIRE_GUARDED_BY(mutex_);
  Links links_ REWIRE_GUARDED_BY(mutex_);
  std::vector<Link*> inside_ REWIRE_GUARDED_BY(mutex_);
  bool left_ REWIRE_GUARDED_BY(mutex_) = false;
};

}  // namespace rewire::shim
