// Re-layouts are planned beside the training step, on a thread of this ("rewire-relayout"), and
// every rank switches to a plan at the same iteration, however long each took to make it.
//
// The layers' counts of every iteration are gathered on all ranks before they can be planned from.
// With them each rank sends its ready(): the least of all is a plan that every rank has. Step() is
// called with the same arguments everywhere, so everywhere it decides the same, without another
// message:
//   - all ranks have the plan that was asked for last: it holds from the next iteration on, and the
//     next one is asked for, from the newest counts;
//   - some rank is still at it: the placements stay as they are.
// Plans are numbered by the iteration whose counts were the newest that they were made from: their
// epoch. A plan that came later than `max_age` iterations is dropped on every rank: what it was
// made from is no longer so.
//
// Step() never waits for the planner. The step's thread: Step, placement, epoch, late, error. Any
// thread: ready.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/moe/counts.h"
#include "reconfig/moe/history.h"
#include "reconfig/moe/placement.h"

namespace rewire::moe {

class HandOver {
 public:
  // Plans one layer from its last iterations; the same on every rank. On this's thread; it must
  // end, for the destructor waits for the layer that is being planned.
  using Planner = std::function<absl::StatusOr<Placement>(std::span<const Counts> iterations)>;
  struct Options {
    uint32_t history = 5;  // iterations that a plan is made from
    uint64_t max_age = 5;  // iterations
  };

  // first: the placement of every layer until there is a plan.
  HandOver(std::vector<Placement> first, Planner planner, Options options);
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  // The epoch of the newest plan that this rank has made; 0: none.
  [[nodiscard]] uint64_t ready() const { return ready_.load(std::memory_order_acquire); }

  // After every iteration. iteration: greater than the one before, from 1. counts: of every layer.
  // ready: the least of all ranks' ready(), as gathered with these counts. Fails, and does nothing,
  // on other arguments.
  [[nodiscard]] absl::Status Step(uint64_t iteration, std::span<const Counts> counts,
                                  uint64_t ready);

  // What holds after the last Step().
  [[nodiscard]] const Placement& placement(size_t layer) const { return placements_[layer]; }
  [[nodiscard]] uint64_t epoch() const { return epoch_; }
  // Plans that were dropped for their age.
  [[nodiscard]] uint64_t late() const { return late_; }
  // Of the last plan, where it could not be made: the placements stayed, on every rank.
  [[nodiscard]] const absl::Status& error() const { return error_; }

 private:
  using Plans = absl::StatusOr<std::vector<Placement>>;
  void Run();
  [[nodiscard]] Plans MakePlans(const std::vector<std::vector<Counts>>& layers) const;
  void TakeOver(uint64_t iteration);
  void Ask(uint64_t iteration);

  const Planner planner_;
  const Options options_;

  // Of the step's thread.
  std::vector<Placement> placements_;
  std::vector<History> histories_;
  uint64_t iteration_ = 0;
  uint64_t epoch_ = 0;
  uint64_t asked_ = 0;  // the plan that was asked for last; 0: none yet
  uint64_t late_ = 0;
  absl::Status error_;

  std::atomic<uint64_t> ready_{0};
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  CondVar changed_;
  // What to plan from, and as which epoch; 0: nothing to do.
  std::vector<std::vector<Counts>> layers_ REWIRE_GUARDED_BY(mutex_);
  uint64_t wanted_ REWIRE_GUARDED_BY(mutex_) = 0;
  Plans plans_ REWIRE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace rewire::moe
