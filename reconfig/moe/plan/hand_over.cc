#include "reconfig/moe/plan/hand_over.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/clock.h"

namespace rewire::moe {

HandOver::HandOver(std::vector<Placement> first, Planner planner, Options options)
    : planner_(std::move(planner)),
      options_(options),
      placements_(std::move(first)),
      histories_(placements_.size(), History(options.history)),
      thread_([this] { Run(); }) {}

HandOver::~HandOver() {
  {
    MutexLock lock(&mutex_);
    stop_.store(true);
  }
  changed_.NotifyAll();
  thread_.join();
}

absl::Status HandOver::Step(uint64_t iteration, std::span<const Counts> counts, uint64_t ready) {
  if (iteration <= iteration_) {
    return absl::InvalidArgumentError(
        absl::StrCat("iteration=", iteration, ": must be above iteration ", iteration_));
  }
  if (counts.size() != placements_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("counts: layers=", counts.size(), ": must be ", placements_.size()));
  }
  const uint64_t own = ready_.load(std::memory_order_acquire);
  if (ready > own) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", ready,
                     " is not ready on all ranks: this rank's newest plan is of iteration ", own));
  }
  iteration_ = iteration;
  for (size_t i = 0; i < counts.size(); ++i) histories_[i].Add(counts[i]);
  if (asked_ != 0) {
    if (ready != asked_) return absl::OkStatus();
    TakeOver(iteration);
  }
  Ask(iteration);
  return absl::OkStatus();
}

void HandOver::TakeOver(uint64_t iteration) {
  Plans plans;
  {
    MutexLock lock(&mutex_);
    plans = std::move(plans_);
  }
  error_ = absl::OkStatus();
  if (!plans.ok()) {
    error_ = std::move(plans).status();
  } else if (iteration - asked_ > options_.max_age) {
    ++late_;
  } else {
    placements_ = *std::move(plans);
    epoch_ = asked_;
  }
}

void HandOver::Ask(uint64_t iteration) {
  std::vector<std::vector<Counts>> layers;
  layers.reserve(histories_.size());
  for (const History& h : histories_) layers.push_back(h.Iterations());
  asked_ = iteration;
  {
    MutexLock lock(&mutex_);
    layers_ = std::move(layers);
    wanted_ = iteration;
  }
  changed_.NotifyAll();
}

HandOver::Plans HandOver::MakePlans(const std::vector<std::vector<Counts>>& layers) const {
  std::vector<Placement> placements;
  for (const std::vector<Counts>& iterations : layers) {
    if (stop_.load()) return absl::CancelledError("the plans are no longer needed");
    absl::StatusOr<Placement> placement = planner_(iterations);
    if (!placement.ok()) return std::move(placement).status();
    placements.push_back(*std::move(placement));
  }
  return placements;
}

void HandOver::Run() {
  pthread_setname_np(pthread_self(), "rewire-relayout");
  for (;;) {
    std::vector<std::vector<Counts>> layers;
    uint64_t epoch = 0;
    {
      MutexLock lock(&mutex_);
      while (wanted_ == 0 && !stop_.load()) changed_.WaitUntil(&mutex_, Now() + seconds(3600));
      if (stop_.load()) return;
      epoch = std::exchange(wanted_, 0);
      layers = std::move(layers_);
    }
    Plans plans = MakePlans(layers);
    {
      MutexLock lock(&mutex_);
      plans_ = std::move(plans);
    }
    ready_.store(epoch, std::memory_order_release);
  }
}

}  // namespace rewire::moe
