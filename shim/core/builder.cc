#include "shim/core/builder.h"

#include <pthread.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(1);
constexpr seconds kEnding(2);
// The limit of threads that are inside NCCL for cancelled builds.
constexpr int kLeft = 4;
constexpr char kEnded[] = "the process is ending";

}  // namespace

Builder::Builder(Environment* environment, MemoryLedger* ledger, Loss* loss, BuildSite* site,
                 milliseconds stalled)
    : interrupts_(environment->nccl.abort_frees_at_group_end),
      counters_(&environment->counters),
      loss_(loss),
      site_(site),
      exit_gate_(environment->exit_gate),
      epoch_build_(environment, ledger, site, stalled),
      watch_("rw-watch") {}

Builder::~Builder() {
  End();
  if (const int running = threads_->AwaitAll(Now() + kEnding); running > 0) {
    REWIRE_WARN("end builder: %d build threads did not return from NCCL within %lld s", running,
                static_cast<long long>(kEnding.count()));
  }
}

void Builder::Build(Epoch epoch, std::vector<elastic::CommunicatorBuild> builds, Time deadline,
                    std::function<void(absl::Status)> done) {
  auto task = std::make_shared<BuildTask>(epoch, std::move(builds), deadline, std::move(done));
  const int left = threads_->Left();
  if (left >= kLeft && !interrupts_) {
    watch_.Post([this, task, left] {
      Report(*task, absl::ResourceExhaustedError(absl::StrCat(
                        "build of epoch ", task->epoch, ": ", left, " threads of cancelled builds ",
                        "are still inside NCCL (limit ", kLeft, "): a peer did not take part, and ",
                        "this version of NCCL does not return (restart the process)")));
    });
    return;
  }
  {
    MutexLock lock(&mutex_);
    tasks_.push_back(task);
    if (ended_) Stop(task, kEnded);
  }
  watch_.PostAt(task->late_from, [this, task] { Hurry(task); });
  watch_.PostAt(deadline, [this, task] { Expire(task); });
  // Posted to the watch thread, whose priority was never lowered.
  watch_.Post([this] { StartNext(); });
}

void Builder::StartNext() {
  MutexLock lock(&mutex_);
  if (running_ || tasks_.empty()) return;
  if (threads_->Left() >= kLeft) {
    watch_.PostAt(Now() + kPoll, [this] { StartNext(); });
    return;
  }
  running_ = true;
  threads_->Begin();
  std::thread([this, task = tasks_.front(), threads = threads_, gate = exit_gate_] {
    pthread_setname_np(pthread_self(), "rw-build");
    // Not checked: the gate is closed after End(), and a task that is stopped does not call NCCL.
    const ExitGate::Inside inside(gate.get());
    Run(task);
    threads->End(task->Left());
  }).detach();
}

bool Builder::Live(const std::shared_ptr<BuildTask>& task) const {
  return std::find(tasks_.begin(), tasks_.end(), task) != tasks_.end();
}

// A stopped task also gets the processor: the program's ncclCommDestroy may wait for its end.
void Builder::Stop(const std::shared_ptr<BuildTask>& task, const std::string& reason) {
  task->Stop(reason);
  EndLowPriority(task);
  watch_.Post([this, task] { Expire(task); });
}

void Builder::Cancel(Epoch epoch, const std::string& reason) {
  MutexLock lock(&mutex_);
  for (const std::shared_ptr<BuildTask>& task : tasks_) {
    if (epoch == 0 || task->epoch == epoch) Stop(task, reason);
  }
}

void Builder::End() {
  MutexLock lock(&mutex_);
  ended_ = true;
  for (const std::shared_ptr<BuildTask>& task : tasks_) Stop(task, kEnded);
}

void Builder::Release(const CommunicatorId& id, Time deadline) {
  MutexLock lock(&mutex_);
  const std::vector<std::shared_ptr<BuildTask>> tasks = tasks_;
  for (const std::shared_ptr<BuildTask>& task : tasks) {
    if (std::none_of(task->builds.begin(), task->builds.end(),
                     [&](const elastic::CommunicatorBuild& b) { return b.communicator == id; })) {
      continue;
    }
    Stop(task, absl::StrCat("communicator ", Name(id), " was destroyed by the program"));
    while (Live(task) && changed_.WaitUntil(&mutex_, deadline)) {
    }
  }
}

void Builder::Arrived() {
  MutexLock lock(&mutex_);
  for (const std::shared_ptr<BuildTask>& task : tasks_) task->Wake();
}

// Ends the low priority of a task that uses up its time: on a host without an idle processor, the
// task would be too late. Runs on the watch thread.
void Builder::Hurry(const std::shared_ptr<BuildTask>& task) {
  MutexLock lock(&mutex_);
  EndLowPriority(task);
}

void Builder::EndLowPriority(const std::shared_ptr<BuildTask>& task) {
  if (priority_ == nullptr || tasks_.front() != task) return;
  counters_->nice_refused += static_cast<uint64_t>(priority_->End());
}

// Ends a task whose thread does not see the stop by itself. Runs on the watch thread.
void Builder::Expire(const std::shared_ptr<BuildTask>& task) {
  const absl::Status stopped = task->Stopped();
  if (stopped.ok()) return;
  std::optional<BuildTask::Abandoned> abandoned;
  {
    MutexLock lock(&mutex_);
    if (!Live(task)) return;
    if (tasks_.front() == task && running_) {
      abandoned = task->Leave();
      if (!abandoned.has_value()) {
        watch_.PostAt(Now() + kPoll, [this, task] { Expire(task); });
        return;
      }
      running_ = false;
      priority_ = nullptr;
      threads_->Leave();
    }
    std::erase(tasks_, task);
    changed_.NotifyAll();
  }
  if (abandoned.has_value()) {
    for (std::unique_ptr<Link>& link : abandoned->inside) loss_->Interrupt(std::move(link));
    loss_->Abort(std::move(abandoned->built));
    site_->Resume();
  }
  StartNext();
  Report(*task, stopped);
}

// Runs on the task's thread. If the thread was left inside NCCL, the builder may no longer exist.
void Builder::Run(const std::shared_ptr<BuildTask>& task) {
  const Time begun = Now();
  LowPriority priority;
  {
    MutexLock lock(&mutex_);
    priority_ = &priority;
  }
  priority.Lower();
  // The priority may have been ended before it was lowered.
  if (Now() >= task->late_from || !task->Stopped().ok()) priority.End();
  std::vector<std::shared_ptr<Chain>> chains;
  absl::Status status = epoch_build_.Run(task.get(), &priority, &chains);
  if (task->Left()) return;
  counters_->nice_refused += static_cast<uint64_t>(priority.End());
  BuildTask::Links links = task->TakeLinks();
  const size_t built = links.size();
  for (size_t i = 0; status.ok() && i < chains.size(); ++i) {
    if (!site_->Install(chains[i], &links[i])) {
      status =
          absl::CancelledError(absl::StrCat("communicator ", Name(chains[i]->id()),
                                            " was destroyed, pinned or lost during the build"));
    }
  }
  if (status.ok()) {
    counters_->builds += built;
    counters_->build_ns += static_cast<uint64_t>(ToNanoseconds(Now() - begun));
  }
  std::erase(links, nullptr);
  // Before the next build can begin, which waits for aborts and may hold destructions again.
  const auto counted = links.empty() ? nullptr : loss_->CountAbort();
  site_->Resume();
  {
    MutexLock lock(&mutex_);
    std::erase(tasks_, task);
    running_ = false;
    priority_ = nullptr;
    changed_.NotifyAll();
  }
  watch_.Post([this] { StartNext(); });
  loss_->AbortUnused(std::move(links));
  Report(*task, std::move(status));
}

void Builder::Report(const BuildTask& task, absl::Status status) {
  if (!status.ok()) {
    ++counters_->failed_builds;
    const auto epoch = static_cast<unsigned long long>(task.epoch);
    const std::string reason(status.message());
    // A cancelled build is no defect: the job or the program has ended the change.
    if (absl::IsCancelled(status)) {
      REWIRE_INFO("build of epoch %llu: cancelled: %s", epoch, reason.c_str());
    } else {
      REWIRE_WARN("build of epoch %llu: failed: %s", epoch, reason.c_str());
    }
  }
  task.done(std::move(status));
}

}  // namespace rewire::shim
