#include "shim/core/build_task.h"

#include <algorithm>

namespace rewire::shim {

void BuildTask::Stop(const std::string& reason) {
  MutexLock lock(&mutex_);
  if (stopped_.ok()) stopped_ = absl::CancelledError(reason);
  changed_.NotifyAll();
}

absl::Status BuildTask::Stopped() {
  MutexLock lock(&mutex_);
  if (stopped_.ok() && Now() >= deadline) {
    stopped_ = absl::DeadlineExceededError(
        "the deadline passed (REWIRE_BUILD_MS): a peer did not take part in time, "
        "or this host was too busy");
  }
  return stopped_;
}

void BuildTask::Wait(Time until) {
  MutexLock lock(&mutex_);
  if (stopped_.ok()) changed_.WaitUntil(&mutex_, until);
}

void BuildTask::Wake() {
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

Link* BuildTask::Add(std::unique_ptr<Link> link) {
  MutexLock lock(&mutex_);
  links_.push_back(std::move(link));
  return links_.back().get();
}

BuildTask::Links BuildTask::TakeLinks() {
  MutexLock lock(&mutex_);
  return std::exchange(links_, {});
}

absl::Status BuildTask::InNccl(std::span<Link* const> links, ncclResult_t* result,
                               const std::function<ncclResult_t()>& call) {
  std::vector<Generation*> generations;
  {
    MutexLock lock(&mutex_);
    if (!stopped_.ok()) return stopped_;
    inside_.assign(links.begin(), links.end());
    for (const Link* link : links) {
      generations.push_back(link->generation);
      link->generation->fixed.fetch_add(1, std::memory_order_seq_cst);
    }
  }
  *result = call();
  // Once the thread was left, a generation may be freed as soon as its count is zero.
  for (Generation* generation : generations) {
    generation->fixed.fetch_sub(1, std::memory_order_seq_cst);
  }
  MutexLock lock(&mutex_);
  inside_.clear();
  return left_ ? absl::CancelledError("the build was cancelled while its thread was inside NCCL")
               : absl::OkStatus();
}

bool BuildTask::Left() {
  MutexLock lock(&mutex_);
  return left_;
}

std::optional<BuildTask::Abandoned> BuildTask::Leave() {
  MutexLock lock(&mutex_);
  if (inside_.empty() || !inside_.front()->blocking) return std::nullopt;
  Abandoned abandoned;
  for (std::unique_ptr<Link>& link : std::exchange(links_, {})) {
    const bool inside = std::find(inside_.begin(), inside_.end(), link.get()) != inside_.end();
    (inside ? abandoned.inside : abandoned.built).push_back(std::move(link));
  }
  left_ = true;
  return abandoned;
}

}  // namespace rewire::shim
