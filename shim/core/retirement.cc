#include "shim/core/retirement.h"

#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include "reconfig/base/log.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(2);
constexpr milliseconds kPollReal(1);
constexpr milliseconds kQuiesce(10000);
constexpr seconds kDestroy(10);

ncclResult_t Settled(const NcclCalls& nccl, ncclComm_t comm, Time deadline) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && Now() < deadline) {
    if (nccl.CommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
    if (state == ncclInProgress) std::this_thread::sleep_for(kPollReal);
  }
  return state;
}

// Makes one call for each communicator, in one group if there are several: one rank's call may wait
// for the other ranks. Returns the first error.
template <typename Call>
ncclResult_t Together(const NcclCalls& nccl, std::span<const ncclComm_t> comms, Call&& call) {
  if (comms.size() == 1) return call(comms.front());
  ncclResult_t result = nccl.GroupStart();
  if (result != ncclSuccess) return result;
  for (const ncclComm_t comm : comms) {
    const ncclResult_t one = call(comm);
    if (result == ncclSuccess && one != ncclInProgress) result = one;
  }
  const ncclResult_t ended = nccl.GroupEnd();
  return result == ncclSuccess ? ended : result;
}

// Finalizes and destroys the ranks of one generation. Non-blocking communicators are polled until
// they are finalized, or aborted at the deadline. False: they had to be aborted.
bool DestroyReal(const NcclCalls& nccl, std::span<const ncclComm_t> comms, bool blocking,
                 Time deadline) {
  ncclResult_t result = ncclSuccess;
  // One rank's refusal inside a group would leave the others half finalized.
  for (const ncclComm_t comm : comms) {
    ncclResult_t state = ncclSuccess;
    if (nccl.CommGetAsyncError(comm, &state) != ncclSuccess) state = ncclInternalError;
    if (state != ncclSuccess && state != ncclInProgress) result = state;
  }
  if (result == ncclSuccess) result = Together(nccl, comms, nccl.CommFinalize);
  if (result == ncclInProgress || (result == ncclSuccess && !blocking)) {
    result = ncclSuccess;
    for (const ncclComm_t comm : comms) {
      const ncclResult_t settled = Settled(nccl, comm, deadline);
      if (result == ncclSuccess) result = settled;
    }
  }
  if (result == ncclSuccess) {
    result = Together(nccl, comms, nccl.CommDestroy);
    if (result == ncclSuccess || result == ncclInProgress) return true;
  }
  static_cast<void>(Together(nccl, comms, nccl.CommAbort));
  return false;
}

}  // namespace

void Retirement::Add(std::unique_ptr<Link> link) {
  const bool destroyed = link->generation == nullptr;
  {
    MutexLock lock(&mutex_);
    link->after = std::move(links_);
    links_ = std::move(link);
    if (destroyed) ++freeing_;
  }
  if (!destroyed) return;
  queue_.Post([this] {
    FreeUnneeded();
    MutexLock lock(&mutex_);
    --freeing_;
  });
}

void Retirement::Retire(std::vector<elastic::GenerationId> generations) {
  MutexLock lock(&mutex_);
  due_.insert(due_.end(), generations.begin(), generations.end());
  Start();
}

void Retirement::ReleaseCaptured(const std::optional<CommunicatorId>& of) {
  MutexLock lock(&mutex_);
  for (Link* link = links_.get(); link != nullptr; link = link->after.get()) {
    if (!of || link->first_id == *of) link->captured = false;
  }
  due_.insert(due_.end(), captured_.begin(), captured_.end());
  captured_.clear();
  Start();
}

bool Retirement::Finish() {
  MutexLock lock(&mutex_);
  if (running_ && !std::exchange(hurried_, true)) ContinueAt(Now());
  return !running_ && freeing_ == 0;
}

bool Retirement::Hold(milliseconds endless) {
  MutexLock lock(&mutex_);
  const bool working = working_since_ && Now() - *working_since_ < endless;
  if (working || (freeing_ > 0 && !working_since_)) return false;
  held_ = true;
  return true;
}

void Retirement::Resume() {
  MutexLock lock(&mutex_);
  if (std::exchange(held_, false) && running_) ContinueAt(Now());
}

void Retirement::End() {
  MutexLock lock(&mutex_);
  ended_ = true;
}

void Retirement::Start() {
  if (!std::exchange(running_, true)) ContinueAt(Now());
}

void Retirement::ContinueAt(Time when) {
  queue_.PostAt(when, [this, call = ++call_] { Continue(call); });
}

std::vector<elastic::GenerationId> Retirement::Held() {
  std::vector<elastic::GenerationId> held;
  {
    MutexLock lock(&mutex_);
    for (const Link* link = links_.get(); link != nullptr; link = link->after.get()) {
      if (link->generation != nullptr) held.push_back({link->epoch, link->id});
    }
    if (destroying_) held.push_back(*destroying_);
  }
  std::sort(held.begin(), held.end());
  return held;
}

std::vector<std::unique_ptr<Link>> Retirement::TakeAll() {
  MutexLock lock(&mutex_);
  std::vector<std::unique_ptr<Link>> all;
  while (links_ != nullptr) all.push_back(Take(&links_));
  return all;
}

Retirement::Slot Retirement::Take(Slot* at) {
  Slot link = std::move(*at);
  *at = std::move(link->after);
  return link;
}

bool Retirement::IsOf(const Link& link, const elastic::GenerationId& generation) {
  return link.generation != nullptr && link.id == generation.communicator &&
         link.epoch == generation.epoch;
}

Retirement::Slots Retirement::TakeAllOf(const elastic::GenerationId& generation) {
  Slots taken;
  for (Slot* at = &links_; *at != nullptr;) {
    if (IsOf(**at, generation)) {
      taken.push_back(Take(at));
    } else {
      at = &(*at)->after;
    }
  }
  // All processes destroy in the order of the ranks.
  std::sort(taken.begin(), taken.end(),
            [](const Slot& a, const Slot& b) { return a->rank < b->rank; });
  return taken;
}

Retirement::Slots Retirement::TakeDue(bool* wait) {
  MutexLock lock(&mutex_);
  *wait = held_ || ended_;
  destroying_.reset();
  if (*wait) return {};
  while (!due_.empty()) {
    bool known = false;
    bool captured = false;
    for (const Link* link = links_.get(); link != nullptr; link = link->after.get()) {
      if (!IsOf(*link, due_.front())) continue;
      known = true;
      captured = captured || link->captured;
      *wait = *wait ||
              (link->end_recorded && device_->Query(link->end) == Device::EventState::kPending);
    }
    const bool rested = rested_ || hurried_;
    if (known && !captured && (*wait || !rested)) return {};  // one pause serves all that are due
    const elastic::GenerationId first = due_.front();
    due_.pop_front();
    *wait = false;
    if (captured) captured_.push_back(first);
    if (!known || captured) continue;
    destroying_ = first;
    return TakeAllOf(first);
  }
  running_ = rested_ = hurried_ = false;
  return {};
}

void Retirement::Continue(uint64_t call) {
  const ExitGate::Inside inside(exit_gate_.get());
  if (!inside.ok()) return;
  {
    MutexLock lock(&mutex_);
    if (call != call_) return;
    working_since_ = Now();
  }
  bool destroyed = false;
  bool wait = false;
  for (Slots links = TakeDue(&wait); !links.empty(); links = TakeDue(&wait)) {
    Destroy(links);
    destroyed = true;
  }
  if (destroyed) {
    FreeUnneeded();
    gone_();
  }
  MutexLock lock(&mutex_);
  working_since_.reset();
  // Meanwhile more may have become due, or Finish() may have posted the next call.
  // Resume() goes on after a hold.
  if (!running_ || call != call_ || held_ || ended_) return;
  rested_ = !wait;
  ContinueAt(Now() + (wait ? kPoll : after_));
}

Retirement::Slot Retirement::TakeUnneeded() {
  MutexLock lock(&mutex_);
  for (Slot* at = &links_; *at != nullptr; at = &(*at)->after) {
    if ((*at)->generation != nullptr) continue;
    bool needed = false;
    for (const Link* link = links_.get(); link != nullptr; link = link->after.get()) {
      needed = needed || (link->end_recorded && link->end == (*at)->end_of_previous);
    }
    if (!needed) return Take(at);
  }
  return nullptr;
}

void Retirement::FreeUnneeded() {
  while (Slot link = TakeUnneeded()) FreeHandlesOf(*link);
}

void Retirement::FreeHandlesOf(const Link& link) {
  if (device_->Enter(link.context).ok()) FreeHandles(device_, link);
}

void Retirement::Destroy(const Slots& links) {
  if (!DestroyGenerations(links)) return;
  for (const Slot& link : links) FreeHandlesOf(*link);
}

std::vector<std::optional<uint64_t>> Retirement::FreeBytes(const Slots& links) {
  std::vector<std::optional<uint64_t>> all;
  for (const Slot& link : links) {
    const bool entered = device_->Enter(link->context).ok();
    const absl::StatusOr<uint64_t> bytes =
        entered ? device_->FreeBytes() : absl::UnavailableError("no context");
    all.push_back(bytes.ok() ? std::optional<uint64_t>(*bytes) : std::nullopt);
  }
  return all;
}

void Retirement::DestroyMeasured(const Slots& links, std::span<const ncclComm_t> comms) {
  const MemoryTurn turn(ledger_->turns());
  const std::vector<std::optional<uint64_t>> before = FreeBytes(links);
  const bool destroyed = DestroyReal(*nccl_, comms, links.front()->blocking, Now() + kDestroy);
  (destroyed ? counters_->retired : counters_->aborted) += comms.size();
  const std::vector<std::optional<uint64_t>> after = FreeBytes(links);
  if (!destroyed || !turn.Alone()) return;
  for (size_t i = 0; i < links.size(); ++i) {
    // Ranks that share a device saw the same rise.
    const bool counted =
        std::any_of(links.begin(), links.begin() + static_cast<ptrdiff_t>(i),
                    [&](const Slot& link) { return link->context == links[i]->context; });
    if (counted || !before[i] || !after[i]) continue;
    ledger_->RecordDestroyed({links[i]->first_id, links[i]->context}, *before[i], *after[i]);
  }
}

bool Retirement::DestroyGenerations(const Slots& links) {
  bool on_device = true;
  std::vector<ncclComm_t> comms;
  for (const Slot& link : links) {
    // If the program has released its device already, the device objects no longer exist.
    if (const absl::Status entered = device_->Enter(link->context); !entered.ok()) {
      REWIRE_WARN("retire generation of epoch %llu: not destroyed: no device context: %s",
                  static_cast<unsigned long long>(link->epoch), entered.ToString().c_str());
      on_device = false;
    }
    if (!services_->quiesce(link->generation, kQuiesce.count())) {
      REWIRE_WARN(
          "retire generation of epoch %llu: not destroyed: a thread was inside it for %lld ms",
          static_cast<unsigned long long>(link->epoch), static_cast<long long>(kQuiesce.count()));
      return false;
    }
    if (const ncclComm_t real = link->generation->Real(); real != nullptr) comms.push_back(real);
  }
  if (on_device && !comms.empty()) DestroyMeasured(links, comms);
  for (const Slot& link : links) services_->free_generation(link->generation);
  return true;
}

}  // namespace rewire::shim
