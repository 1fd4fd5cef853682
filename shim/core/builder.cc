#include "shim/core/builder.h"

#include <pthread.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(1);
constexpr seconds kEnding(2);
// The limit of threads that are inside NCCL for cancelled builds.
constexpr int kLeft = 4;

}  // namespace

// Threads count themselves here, because a thread that was left may outlive the builder.
struct Builder::Threads {
  Mutex mutex;
  CondVar changed;
  int running REWIRE_GUARDED_BY(mutex) = 0;
  int left REWIRE_GUARDED_BY(mutex) = 0;
};

Builder::Builder(const NcclCalls* nccl, const ShimServices* services, Device* device,
                 CoreCounters* counters, MemoryLedger* ledger, Loss* loss, BuildSite* site,
                 milliseconds stalled)
    : interrupts_(nccl->abort_frees_at_group_end),
      device_(device),
      counters_(counters),
      ledger_(ledger),
      loss_(loss),
      site_(site),
      generations_(nccl, services, device, counters, ledger, stalled),
      threads_(std::make_shared<Threads>()),
      watch_("rw-watch") {}

Builder::~Builder() {
  Cancel(0, "the process is ending");
  const Time until = Now() + kEnding;
  MutexLock lock(&threads_->mutex);
  while (threads_->running > 0 && threads_->changed.WaitUntil(&threads_->mutex, until)) {
  }
  if (threads_->running > 0) {
    REWIRE_WARN("end builder: %d build threads did not return from NCCL within %lld s",
                threads_->running, static_cast<long long>(kEnding.count()));
  }
}

int Builder::Left() const {
  MutexLock lock(&threads_->mutex);
  return threads_->left;
}

void Builder::Build(Epoch epoch, std::vector<elastic::CommunicatorBuild> builds, Time deadline,
                    std::function<void(absl::Status)> done) {
  auto task = std::make_shared<BuildTask>(epoch, std::move(builds), deadline, std::move(done));
  const int left = Left();
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
  }
  watch_.PostAt(task->late_from, [this, task] { Hurry(task); });
  watch_.PostAt(deadline, [this, task] { Expire(task); });
  // Posted to the watch thread, whose priority was never lowered.
  watch_.Post([this] { StartNext(); });
}

void Builder::StartNext() {
  MutexLock lock(&mutex_);
  if (running_ || tasks_.empty()) return;
  if (Left() >= kLeft) {
    watch_.PostAt(Now() + kPoll, [this] { StartNext(); });
    return;
  }
  running_ = true;
  {
    MutexLock count(&threads_->mutex);
    ++threads_->running;
  }
  std::thread([this, task = tasks_.front(), threads = threads_] {
    pthread_setname_np(pthread_self(), "rw-build");
    Run(task);
    MutexLock count(&threads->mutex);
    --threads->running;
    if (task->Left()) --threads->left;
    threads->changed.NotifyAll();
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

bool Builder::Release(const CommunicatorId& id, Time deadline) {
  MutexLock lock(&mutex_);
  const std::vector<std::shared_ptr<BuildTask>> tasks = tasks_;
  bool released = true;
  for (const std::shared_ptr<BuildTask>& task : tasks) {
    if (std::none_of(task->builds.begin(), task->builds.end(),
                     [&](const elastic::CommunicatorBuild& b) { return b.communicator == id; })) {
      continue;
    }
    Stop(task, absl::StrCat("communicator ", Name(id), " was destroyed by the program"));
    while (Live(task) && changed_.WaitUntil(&mutex_, deadline)) {
    }
    released = released && !Live(task) && !task->Left();
  }
  return released;
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
      MutexLock count(&threads_->mutex);
      ++threads_->left;
    }
    std::erase(tasks_, task);
    changed_.NotifyAll();
  }
  if (abandoned.has_value()) {
    loss_->Interrupt(std::move(abandoned->inside));
    loss_->Abort(std::move(abandoned->built));
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
  absl::Status status = BuildAll(task.get(), &priority, &chains);
  if (task->Left()) return;
  counters_->nice_refused += static_cast<uint64_t>(priority.End());
  BuildTask::Links links = task->TakeLinks();
  const size_t built = links.size();
  for (size_t i = 0; status.ok() && i < chains.size(); ++i) {
    if (!site_->Install(chains[i], &links[i])) {
      status = absl::CancelledError(absl::StrCat(
          "communicator ", Name(chains[i]->id), " was destroyed, pinned or lost during the build"));
    }
  }
  {
    MutexLock lock(&mutex_);
    std::erase(tasks_, task);
    running_ = false;
    priority_ = nullptr;
    changed_.NotifyAll();
  }
  watch_.Post([this] { StartNext(); });
  if (status.ok()) {
    counters_->builds += built;
    counters_->build_ns += static_cast<uint64_t>(ToNanoseconds(Now() - begun));
  }
  std::erase(links, nullptr);
  loss_->AbortUnused(std::move(links));
  Report(*task, std::move(status));
}

void Builder::Report(const BuildTask& task, absl::Status status) {
  if (!status.ok()) {
    ++counters_->failed_builds;
    REWIRE_WARN("build of epoch %llu: the generations were not built: %s",
                static_cast<unsigned long long>(task.epoch), std::string(status.message()).c_str());
  }
  task.done(std::move(status));
}

absl::Status Builder::BuildAll(BuildTask* task, LowPriority* priority,
                               std::vector<std::shared_ptr<Chain>>* chains) {
  for (size_t i = 0; i < task->builds.size(); ++i) {
    const elastic::CommunicatorBuild& build = task->builds[i];
    REWIRE_ASSIGN_OR_RETURN(std::shared_ptr<Chain> chain, Await(task, build.communicator));
    REWIRE_RETURN_IF_ERROR(device_->Enter(chain->context));
    REWIRE_RETURN_IF_ERROR(CheckMemory(std::span(task->builds).subspan(i)));
    chains->push_back(chain);
    REWIRE_RETURN_IF_ERROR(generations_.Run(task, chain.get(), build, priority));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Chain>> Builder::Await(BuildTask* task, const CommunicatorId& id) {
  for (;;) {
    REWIRE_RETURN_IF_ERROR(task->Stopped());
    bool may_come = false;
    if (std::shared_ptr<Chain> chain = site_->Find(id, &may_come)) return chain;
    if (!may_come) {
      return absl::NotFoundError(
          absl::StrCat("communicator ", Name(id), " does not exist in this process"));
    }
    task->Wait(std::min(task->deadline, Now() + milliseconds(50)));
  }
}

absl::Status Builder::CheckMemory(std::span<const elastic::CommunicatorBuild> builds) {
  std::vector<CommunicatorId> ids;
  for (const elastic::CommunicatorBuild& build : builds) ids.push_back(build.communicator);
  REWIRE_ASSIGN_OR_RETURN(const uint64_t free_bytes, device_->FreeBytes());
  return ledger_->Check(ids, free_bytes);
}

}  // namespace rewire::shim
