#include "shim/core/builder.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "shim/core/real_communicator.h"
#include "shim/core/thread_priority.h"

namespace rewire::shim {

namespace {

constexpr int kNice = 15;
constexpr milliseconds kPoll(1);
constexpr size_t kScratchBytes = 256;

std::string Name(const CommunicatorId& id) {
  return absl::StrCat(absl::Hex(id.high, absl::kZeroPad16), absl::Hex(id.low, absl::kZeroPad16));
}

}  // namespace

// One Build() call.
struct Builder::Task {
  Epoch epoch = 0;
  std::vector<CommunicatorBuild> builds;
  Time deadline{};
  std::function<void(absl::Status)> done;
  // Under Builder::mutex_:
  std::string stopped;          // why it must stop
  Link* inside = nullptr;       // what the builder's thread is inside NCCL with
  bool inside_aborted = false;  // and the watcher has aborted it
};

Builder::Builder(const NcclCalls* nccl, const ShimServices* services, Device* device,
                 CoreCounters* counters, MemoryLedger* ledger, Loss* loss, BuildSite* site,
                 milliseconds stalled)
    : nccl_(nccl),
      services_(services),
      device_(device),
      counters_(counters),
      ledger_(ledger),
      loss_(loss),
      site_(site),
      stalled_(stalled),
      watch_("rw-watch"),
      queue_("rw-build") {}

Builder::~Builder() { Cancel(0, "the process is ending"); }

void Builder::Build(Epoch epoch, std::vector<CommunicatorBuild> builds, Time deadline,
                    std::function<void(absl::Status)> done) {
  auto task = std::make_shared<Task>();
  task->epoch = epoch;
  task->builds = std::move(builds);
  task->deadline = deadline;
  task->done = std::move(done);
  {
    MutexLock lock(&mutex_);
    tasks_.push_back(task);
  }
  watch_.PostAt(deadline, [this, task] { Expire(task); });
  queue_.Post([this, task] { Run(task); });
}

bool Builder::Live(const std::shared_ptr<Task>& task) const {
  return std::find(tasks_.begin(), tasks_.end(), task) != tasks_.end();
}

void Builder::Stop(const std::shared_ptr<Task>& task, const std::string& reason) {
  if (task->stopped.empty()) task->stopped = reason;
  changed_.NotifyAll();
  watch_.Post([this, task] { Expire(task); });
}

void Builder::Cancel(Epoch epoch, const std::string& reason) {
  MutexLock lock(&mutex_);
  for (const std::shared_ptr<Task>& task : tasks_) {
    if (epoch == 0 || task->epoch == epoch) Stop(task, reason);
  }
}

void Builder::Release(const CommunicatorId& id, Time deadline) {
  MutexLock lock(&mutex_);
  const std::vector<std::shared_ptr<Task>> tasks = tasks_;
  for (const std::shared_ptr<Task>& task : tasks) {
    if (std::none_of(task->builds.begin(), task->builds.end(),
                     [&](const CommunicatorBuild& b) { return b.communicator == id; })) {
      continue;
    }
    Stop(task, absl::StrCat("communicator ", Name(id), " was destroyed by the program"));
    while (Live(task) && changed_.WaitUntil(&mutex_, deadline)) {
    }
  }
}

void Builder::Arrived() {
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

// On the watcher's thread: gets the builder's thread out of NCCL.
void Builder::Expire(const std::shared_ptr<Task>& task) {
  ncclComm_t victim = nullptr;
  {
    MutexLock lock(&mutex_);
    if (!Live(task)) return;
    if (task->stopped.empty()) {
      if (Now() < task->deadline) return;
      task->stopped = "the deadline passed (REWIRE_BUILD_MS): a peer did not come, or is too slow";
      changed_.NotifyAll();
    }
    // A non-blocking one is polled by the builder's thread itself, which aborts it.
    if (task->inside == nullptr || !task->inside->blocking || task->inside_aborted) {
      watch_.PostAt(Now() + kPoll, [this, task] { Expire(task); });
      return;
    }
    victim = task->inside->generation->Real();
    if (victim == nullptr) {  // NCCL has not given the handle out yet
      watch_.PostAt(Now() + kPoll, [this, task] { Expire(task); });
      return;
    }
    task->inside_aborted = true;
  }
  static_cast<void>(nccl_->CommAbort(victim));
}

absl::Status Builder::Stopped(Task* task) {
  MutexLock lock(&mutex_);
  if (task->stopped.empty() && Now() >= task->deadline) {
    task->stopped = "the deadline passed (REWIRE_BUILD_MS): a peer did not come, or is too slow";
  }
  return task->stopped.empty() ? absl::OkStatus() : absl::CancelledError(task->stopped);
}

void Builder::LowerPriority() {
  if (program_niceness_.has_value()) return;
  // The threads that NCCL makes inherit our niceness and must get the program's back, so it is
  // lowered only where it may be raised again.
  const int before = OwnNiceness();
  program_niceness_ = before;
  SetOwnNiceness(before + 1);
  SetOwnNiceness(before);
  if (OwnNiceness() == before) SetOwnNiceness(std::max(before, kNice));
}

void Builder::Run(const std::shared_ptr<Task>& task) {
  LowerPriority();
  const Time begun = Now();
  std::vector<std::unique_ptr<Link>> links;
  std::vector<std::shared_ptr<Chain>> chains;
  absl::Status status = BuildAll(task.get(), &links, &chains);
  const size_t built = links.size();
  for (size_t i = 0; status.ok() && i < chains.size(); ++i) {
    if (!site_->Install(chains[i], &links[i])) {
      status = absl::CancelledError(absl::StrCat("communicator ", Name(chains[i]->id),
                                                 " was destroyed, pinned or lost meanwhile"));
    }
  }
  {
    MutexLock lock(&mutex_);
    std::erase(tasks_, task);
    changed_.NotifyAll();
  }
  if (status.ok()) {
    counters_->builds.fetch_add(built, std::memory_order_relaxed);
    counters_->build_ns.fetch_add(static_cast<uint64_t>(ToNanoseconds(Now() - begun)),
                                  std::memory_order_relaxed);
  } else {
    counters_->failed_builds.fetch_add(1, std::memory_order_relaxed);
    REWIRE_WARN("the generations of epoch %llu were not built: %s",
                static_cast<unsigned long long>(task->epoch),
                std::string(status.message()).c_str());
    std::erase(links, nullptr);
    loss_->AbortUnused(std::move(links));
  }
  task->done(std::move(status));
}

absl::Status Builder::BuildAll(Task* task, std::vector<std::unique_ptr<Link>>* links,
                               std::vector<std::shared_ptr<Chain>>* chains) {
  bool measured = false;
  for (const CommunicatorBuild& build : task->builds) {
    REWIRE_ASSIGN_OR_RETURN(std::shared_ptr<Chain> chain, Await(task, build.communicator));
    REWIRE_RETURN_IF_ERROR(device_->Enter(chain->context));
    if (!std::exchange(measured, true)) REWIRE_RETURN_IF_ERROR(CheckMemory(*task));
    chains->push_back(chain);
    std::unique_ptr<Link> link;
    const absl::Status status = BuildOne(task, chain.get(), build, &link);
    if (link != nullptr) links->push_back(std::move(link));
    REWIRE_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Chain>> Builder::Await(Task* task, const CommunicatorId& id) {
  for (;;) {
    REWIRE_RETURN_IF_ERROR(Stopped(task));
    bool may_come = false;
    if (std::shared_ptr<Chain> chain = site_->Find(id, &may_come)) return chain;
    if (!may_come) {
      return absl::NotFoundError(
          absl::StrCat("communicator ", Name(id), " does not exist in this process"));
    }
    MutexLock lock(&mutex_);
    changed_.WaitUntil(&mutex_, std::min(task->deadline, Now() + milliseconds(50)));
  }
}

absl::Status Builder::CheckMemory(const Task& task) {
  std::vector<CommunicatorId> ids;
  for (const CommunicatorBuild& build : task.builds) ids.push_back(build.communicator);
  REWIRE_ASSIGN_OR_RETURN(const uint64_t free_bytes, device_->FreeBytes());
  return ledger_->Check(ids, free_bytes);
}

absl::Status Builder::BuildOne(Task* task, Chain* chain, const CommunicatorBuild& build,
                               std::unique_ptr<Link>* out) {
  REWIRE_ASSIGN_OR_RETURN(const uint64_t free_before, device_->FreeBytes());
  auto link = std::make_unique<Link>();
  link->id = chain->id;
  link->epoch = task->epoch;
  link->ranks = build.ranks;
  link->rank = build.rank;
  link->blocking = chain->blocking;
  link->context = chain->context;
  REWIRE_ASSIGN_OR_RETURN(link->end_of_previous, device_->MakeEvent());
  link->generation = services_->new_generation(task->epoch, static_cast<int>(build.ranks),
                                               static_cast<int>(build.rank));
  if (link->generation == nullptr) {
    device_->DestroyEvent(link->end_of_previous);
    return absl::ResourceExhaustedError("no memory for a generation");
  }
  {
    MutexLock lock(&chain->mutex);
    if (chain->scratch == nullptr) {
      absl::StatusOr<void*> scratch = device_->Allocate(kScratchBytes);
      if (scratch.ok()) chain->scratch = *scratch;
    }
    if (chain->current != nullptr) {
      link->generation->device.store(chain->current->generation->device.load());
    }
  }
  {
    MutexLock lock(&mutex_);
    task->inside = link.get();
    task->inside_aborted = false;
  }
  const std::set<pid_t> threads = ThreadIds();
  absl::Status status = Connect(task, chain, build, link.get());
  int refused = 0;
  if (OwnNiceness() != *program_niceness_) {
    RestoreNicenessOfNewThreads(threads, *program_niceness_, &refused);
  }
  counters_->nice_refused.fetch_add(static_cast<uint64_t>(refused), std::memory_order_relaxed);
  bool aborted = false;
  {
    MutexLock lock(&mutex_);
    task->inside = nullptr;
    aborted = task->inside_aborted;
    if (aborted) status = absl::CancelledError(task->stopped);
  }
  if (aborted) {  // by the watcher: the handle is dead
    __atomic_store_n(&link->generation->real, nullptr, __ATOMIC_RELEASE);
    counters_->aborted.fetch_add(1, std::memory_order_relaxed);
  }
  *out = std::move(link);
  REWIRE_RETURN_IF_ERROR(status);
  REWIRE_ASSIGN_OR_RETURN(const uint64_t free_after, device_->FreeBytes());
  ledger_->Record(chain->id, free_before, free_after);
  return absl::OkStatus();
}

absl::Status Builder::Connect(Task* task, Chain* chain, const CommunicatorBuild& build,
                              Link* link) {
  if (build.unique_id.size() < NCCL_UNIQUE_ID_BYTES) {
    return absl::InvalidArgumentError(
        absl::StrCat("a unique id of ", build.unique_id.size(), " bytes; NCCL's have 128"));
  }
  std::string_view hints = std::string_view(build.unique_id).substr(NCCL_UNIQUE_ID_BYTES);
  const bool beside = hints.substr(0, kBeside.size()) == kBeside;
  if (beside) hints.remove_prefix(kBeside.size());
  REWIRE_ASSIGN_OR_RETURN(const std::vector<UsageClass> usage, DecodeUsage(hints));
  REWIRE_RETURN_IF_ERROR(Stopped(task));
  ncclUniqueId id;
  std::memcpy(id.internal, build.unique_id.data(), sizeof id.internal);
  const Recipe& recipe = chain->comm->recipe;
  Generation* generation = link->generation;
  const auto ranks = static_cast<int>(build.ranks);
  const auto rank = static_cast<int>(build.rank);
  const ncclConfig_t* config = recipe.Config();
  ncclResult_t result = config == nullptr
                            ? nccl_->CommInitRank(&generation->real, ranks, id, rank)
                            : nccl_->CommInitRankConfig(&generation->real, ranks, id, rank,
                                                        const_cast<ncclConfig_t*>(config));
  const auto failed = [&](const char* what, ncclResult_t r) {
    return absl::InternalError(absl::StrCat(what, " of communicator ", Name(chain->id), " as rank ",
                                            rank, " of ", ranks, " failed with ncclResult ",
                                            static_cast<int>(r)));
  };
  if (result != ncclSuccess && result != ncclInProgress) {
    // A failed blocking call has taken its communicator with it.
    if (link->blocking) __atomic_store_n(&generation->real, nullptr, __ATOMIC_RELEASE);
    return failed("the creation", result);
  }
  if (!link->blocking) REWIRE_RETURN_IF_ERROR(Settle(task, generation->Real()));
  result = services_->replay(chain->comm, generation);
  if (result != ncclSuccess) return failed("the replay of registrations", result);
  void* scratch = nullptr;
  {
    MutexLock lock(&chain->mutex);
    scratch = chain->scratch;
  }
  if (scratch == nullptr) return absl::ResourceExhaustedError("no device memory for warm-up");
  // On a non-blocking communicator it would really launch.
  if (link->blocking) {
    result = Simulate(*nccl_, usage, generation->Real(), scratch);
    if (result != ncclSuccess) return failed("the warm-up", result);
    counters_->warmed_classes.fetch_add(usage.size(), std::memory_order_relaxed);
  }
  return beside ? RunBeside(task, chain, link, scratch) : absl::OkStatus();
}

absl::Status Builder::RunBeside(Task* task, Chain* chain, Link* link, void* scratch) {
  REWIRE_ASSIGN_OR_RETURN(const cudaStream_t stream, device_->MakeStream());
  absl::Status status = [&]() -> absl::Status {
    const ncclComm_t comm = link->generation->Real();
    const ncclResult_t result =
        nccl_->AllReduce(scratch, scratch, 1, ncclFloat32, ncclSum, comm, stream);
    if (result != ncclSuccess && result != ncclInProgress) {
      return absl::InternalError(
          absl::StrCat("the first operation on a new generation failed with "
                       "ncclResult ",
                       static_cast<int>(result)));
    }
    if (!link->blocking) REWIRE_RETURN_IF_ERROR(Settle(task, comm));
    // Free until the generation is in use.
    if (!device_->Record(link->end_of_previous, stream)) {
      return absl::InternalError("no event can be recorded behind a new generation's operation");
    }
    return AwaitBeside(task, chain, link->end_of_previous);
  }();
  device_->DestroyStream(stream);
  if (status.ok()) {
    link->warmed = true;
    counters_->warmed_beside.fetch_add(1, std::memory_order_relaxed);
  }
  return status;
}

absl::Status Builder::AwaitBeside(Task* task, Chain* chain, DeviceEvent done) {
  uint64_t issued = chain->comm->issued.load(std::memory_order_relaxed);
  Time moved = Now();
  for (;;) {
    switch (device_->Query(done)) {
      case Device::EventState::kDone:
        return absl::OkStatus();
      case Device::EventState::kFailed:
        return absl::InternalError("the device failed at a new generation's first operation");
      case Device::EventState::kPending:
        break;
    }
    REWIRE_RETURN_IF_ERROR(Stopped(task));
    const uint64_t now_issued = chain->comm->issued.load(std::memory_order_relaxed);
    if (std::exchange(issued, now_issued) != now_issued) moved = Now();
    // A joiner has nothing that could be in the way.
    if (issued != 0 && Now() - moved > stalled_) {
      // Perhaps the two are in each other's way on some device. Aborting the new one, which nobody
      // depends on, lets the old one go on. It is not tried again.
      counters_->beside_refused.fetch_add(1, std::memory_order_relaxed);
      return absl::AbortedError(absl::StrCat(
          "the first operation on the new generation did not end, and the program "
          "issued nothing for ",
          stalled_.count(), " ms meanwhile; from now on it runs at an agreed operation instead"));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

absl::Status Builder::Settle(Task* task, ncclComm_t comm) {
  for (;;) {
    REWIRE_RETURN_IF_ERROR(Stopped(task));
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = nccl_->CommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclSuccess) return absl::OkStatus();
    if (state != ncclInProgress) {
      return absl::InternalError(absl::StrCat("the creation failed with ncclResult ", state));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace rewire::shim
