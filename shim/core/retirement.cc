#include "shim/core/retirement.h"

#include <tuple>
#include <utility>

#include "reconfig/base/log.h"
#include "shim/core/real_communicator.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(2);
constexpr milliseconds kQuiesce(10000);
constexpr seconds kDestroy(10);

// Oldest epoch first: a link looks at an event that belongs to the one after it. Within an epoch by
// identity, which is the same on all ranks.
auto OrderOf(const Link& link) { return std::tie(link.epoch, link.id); }

}  // namespace

void Retirement::Add(std::unique_ptr<Link> link) {
  MutexLock lock(&mutex_);
  link->after = std::move(links_);
  links_ = std::move(link);
}

void Retirement::Retire(Epoch epoch, std::function<void()> done) {
  auto batch = std::make_shared<Batch>();
  batch->epoch = epoch;
  batch->done = std::move(done);
  queue_.Post([this, batch] { Continue(batch); });
}

std::vector<std::unique_ptr<Link>> Retirement::TakeAll() {
  MutexLock lock(&mutex_);
  std::vector<std::unique_ptr<Link>> all;
  while (links_ != nullptr) {
    std::unique_ptr<Link> rest = std::move(links_->after);
    all.push_back(std::move(links_));
    links_ = std::move(rest);
  }
  return all;
}

bool Retirement::Pending(Epoch epoch) {
  MutexLock lock(&mutex_);
  for (const Link* link = links_.get(); link != nullptr; link = link->after.get()) {
    if (link->epoch < epoch && link->end_recorded &&
        device_->Query(link->end) == Device::EventState::kPending) {
      return true;
    }
  }
  return false;
}

std::unique_ptr<Link> Retirement::TakeFirst(Epoch epoch) {
  MutexLock lock(&mutex_);
  std::unique_ptr<Link>* first = nullptr;
  for (std::unique_ptr<Link>* at = &links_; *at != nullptr; at = &(*at)->after) {
    if ((*at)->epoch < epoch && (first == nullptr || OrderOf(**at) < OrderOf(**first))) first = at;
  }
  if (first == nullptr) return nullptr;
  std::unique_ptr<Link> link = std::move(*first);
  *first = std::move(link->after);
  return link;
}

void Retirement::Continue(const std::shared_ptr<Batch>& batch) {
  if (!batch->settled) {
    batch->settled = !Pending(batch->epoch);
    queue_.PostAt(Now() + (batch->settled ? after_ : kPoll), [this, batch] { Continue(batch); });
    return;
  }
  while (std::unique_ptr<Link> link = TakeFirst(batch->epoch)) Destroy(std::move(link));
  if (batch->done) batch->done();
}

void Retirement::Destroy(std::unique_ptr<Link> link) {
  // Where the program has given its device back already, what was on it is gone.
  const absl::Status entered = device_->Enter(link->context);
  if (!entered.ok()) {
    REWIRE_WARN("an old generation is left undestroyed: %s", entered.ToString().c_str());
  }
  if (link->generation != nullptr) DestroyGeneration(*link, entered.ok());
  if (entered.ok() && link->end_of_previous != nullptr) {
    device_->DestroyEvent(link->end_of_previous);
  }
}

void Retirement::DestroyGeneration(const Link& link, bool on_device) {
  if (!services_->quiesce(link.generation, kQuiesce.count())) {
    REWIRE_WARN("a thread has been inside an old generation for %lld ms: it is left undestroyed",
                static_cast<long long>(kQuiesce.count()));
    return;
  }
  if (const ncclComm_t real = link.generation->Real(); on_device && real != nullptr) {
    const bool destroyed = DestroyReal(*nccl_, {real, link.blocking}, Now() + kDestroy);
    (destroyed ? counters_->retired : counters_->aborted).fetch_add(1, std::memory_order_relaxed);
  }
  services_->free_generation(link.generation);
}

}  // namespace rewire::shim
