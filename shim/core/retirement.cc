#include "shim/core/retirement.h"

#include <algorithm>
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

// Finalizes and destroys a communicator. A non-blocking communicator is polled until it is
// finalized, or aborted at the deadline. False: the communicator had to be aborted.
bool DestroyReal(const NcclCalls& nccl, ncclComm_t comm, bool blocking, Time deadline) {
  ncclResult_t result = nccl.CommFinalize(comm);
  if (result == ncclInProgress || (result == ncclSuccess && !blocking)) {
    result = Settled(nccl, comm, deadline);
  }
  if (result == ncclSuccess) {
    result = nccl.CommDestroy(comm);
    if (result == ncclSuccess || result == ncclInProgress) return true;
  }
  static_cast<void>(nccl.CommAbort(comm));
  return false;
}

}  // namespace

void Retirement::Add(std::unique_ptr<Link> link) {
  const bool only_event = link->generation == nullptr;
  {
    MutexLock lock(&mutex_);
    link->after = std::move(links_);
    links_ = std::move(link);
  }
  if (only_event) queue_.Post([this] { FreeEvents(); });
}

void Retirement::Retire(std::vector<elastic::GenerationId> generations) {
  MutexLock lock(&mutex_);
  due_.insert(due_.end(), generations.begin(), generations.end());
  Start();
}

void Retirement::ReleaseCaptured(const std::optional<CommunicatorId>& of) {
  MutexLock lock(&mutex_);
  for (Link* link = links_.get(); link != nullptr; link = link->after.get()) {
    if (!of || link->id == *of) link->captured = false;
  }
  due_.insert(due_.end(), captured_.begin(), captured_.end());
  captured_.clear();
  Start();
}

void Retirement::Start() {
  if (std::exchange(running_, true)) return;
  queue_.Post([this] { Continue(); });
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

Retirement::Slot* Retirement::Find(const elastic::GenerationId& generation) {
  for (Slot* at = &links_; *at != nullptr; at = &(*at)->after) {
    if ((*at)->generation != nullptr && (*at)->id == generation.communicator &&
        (*at)->epoch == generation.epoch) {
      return at;
    }
  }
  return nullptr;
}

Retirement::Slot Retirement::TakeDue(bool* wait) {
  MutexLock lock(&mutex_);
  *wait = false;
  destroying_.reset();
  while (!due_.empty()) {
    Slot* at = Find(due_.front());
    if (at == nullptr) {
      due_.pop_front();
      continue;
    }
    if ((*at)->captured) {
      captured_.push_back(due_.front());
      due_.pop_front();
      continue;
    }
    *wait = (*at)->end_recorded && device_->Query((*at)->end) == Device::EventState::kPending;
    // One pause serves all generations that are due together.
    if (*wait || !rested_) return nullptr;
    destroying_ = due_.front();
    due_.pop_front();
    return Take(at);
  }
  running_ = false;
  return nullptr;
}

void Retirement::Continue() {
  bool destroyed = false;
  bool wait = false;
  while (Slot link = TakeDue(&wait)) {
    Destroy(std::move(link));
    destroyed = true;
  }
  if (destroyed) {
    FreeEvents();
    gone_();
  }
  {
    MutexLock lock(&mutex_);
    if (!running_) {
      rested_ = false;
      return;
    }
  }
  rested_ = !wait;
  queue_.PostAt(Now() + (wait ? kPoll : after_), [this] { Continue(); });
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

void Retirement::FreeEvents() {
  while (Slot link = TakeUnneeded()) Destroy(std::move(link));
}

void Retirement::Destroy(Slot link) {
  // If the program has released its device already, the device objects no longer exist.
  const absl::Status entered = device_->Enter(link->context);
  if (!entered.ok()) {
    REWIRE_WARN("retire generation of epoch %llu: not destroyed: no device context: %s",
                static_cast<unsigned long long>(link->epoch), entered.ToString().c_str());
  }
  if (link->generation != nullptr) DestroyGeneration(*link, entered.ok());
  if (entered.ok() && link->end_of_previous != nullptr) {
    device_->DestroyEvent(link->end_of_previous);
  }
}

void Retirement::DestroyGeneration(const Link& link, bool on_device) {
  if (!services_->quiesce(link.generation, kQuiesce.count())) {
    REWIRE_WARN(
        "retire generation of epoch %llu: not destroyed: a thread was inside it for %lld ms",
        static_cast<unsigned long long>(link.epoch), static_cast<long long>(kQuiesce.count()));
    return;
  }
  if (const ncclComm_t real = link.generation->Real(); on_device && real != nullptr) {
    const bool destroyed = DestroyReal(*nccl_, real, link.blocking, Now() + kDestroy);
    ++(destroyed ? counters_->retired : counters_->aborted);
  }
  services_->free_generation(link.generation);
}

}  // namespace rewire::shim
