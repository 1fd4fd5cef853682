// Plans re-layouts beside the training step, on the thread "rewire-relayout" that HandOver owns.
// Every rank switches to a plan at the same iteration, whenever each rank completed the plan.
//
// The layers' counts of every iteration are gathered on all ranks before planning. With the counts
// each rank sends its ready(); the minimum over all ranks is a plan that every rank has. Step() is
// called with the same arguments on every rank, so all ranks decide alike without another message:
//   - If all ranks have the plan that was requested last, the plan holds from the next iteration.
//     The next plan is requested from the newest counts.
//   - If some rank has not finished the plan, the placements stay as they are.
// A plan's number, its epoch, is the newest iteration whose counts the plan was made from. A plan
// that comes more than `max_age` iterations later is dropped on every rank as outdated.
//
// Step() never waits for the planner. ready() is thread-safe; the step's thread owns Step(),
// placement(), epoch(), late() and error().
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
#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/placement.h"

namespace rewire::moe {

class HandOver {
 public:
  // Plans one layer from its last iterations, with the same result on every rank. Runs on the
  // thread "rewire-relayout". A call must end: the destructor waits for the layer in planning.
  using Planner = std::function<absl::StatusOr<Placement>(std::span<const Counts> iterations)>;
  struct Options {
    uint32_t history = 5;  // iterations that a plan is made from
    uint64_t max_age = 5;  // iterations
  };

  // first: the placement of every layer until the first plan.
  HandOver(std::vector<Placement> first, Planner planner, Options options);
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  // Returns the epoch of the newest plan that this rank has made; 0: none. Thread-safe.
  [[nodiscard]] uint64_t ready() const { return ready_.load(std::memory_order_acquire); }

  // Call after every iteration. iteration: from 1, greater than in the call before. counts: one per
  // layer. ready: the minimum of all ranks' ready(), as gathered with these counts. On other
  // arguments Step() fails without effect.
  [[nodiscard]] absl::Status Step(uint64_t iteration, std::span<const Counts> counts,
                                  uint64_t ready);

  // The placement and epoch after the last Step().
  [[nodiscard]] const Placement& placement(size_t layer) const { return placements_[layer]; }
  [[nodiscard]] uint64_t epoch() const { return epoch_; }
  // Returns the number of plans that were dropped for their age.
  [[nodiscard]] uint64_t late() const { return late_; }
  // Returns why the last plan could not be made; the placements stayed, on every rank.
  [[nodiscard]] const absl::Status& error() const { return error_; }

 private:
  using Plans = absl::StatusOr<std::vector<Placement>>;
  void Run();
  [[nodiscard]] Plans MakePlans(const std::vector<std::vector<Counts>>& layers) const;
  void TakeOver(uint64_t iteration);
  void Ask(uint64_t iteration);

  const Planner planner_;
  const Options options_;

  // Owned by the step's thread.
  std::vector<Placement> placements_;
  std::vector<History> histories_;
  uint64_t iteration_ = 0;
  uint64_t epoch_ = 0;
  uint64_t asked_ = 0;  // the plan that was requested last; 0: none yet
  uint64_t late_ = 0;
  absl::Status error_;

  std::atomic<uint64_t> ready_{0};
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  CondVar changed_;
  // The counts to plan from and the epoch of the plan; 0: no work.
  std::vector<std::vector<Counts>> layers_ REWIRE_GUARDED_BY(mutex_);
  uint64_t wanted_ REWIRE_GUARDED_BY(mutex_) = 0;
  Plans plans_ REWIRE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace rewire::moe
