// The counts of the last iterations, which re-layouts are planned from: one alone says little about
// the next. For one thread at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "reconfig/moe/counts.h"

namespace rewire::moe {

class History {
 public:
  // iterations: how many are kept, at least one. LAER-MoE keeps 5.
  explicit History(size_t iterations) : most_(iterations) {}

  // Of as many devices and experts as those before.
  void Add(Counts counts) {
    kept_.push_back(std::move(counts));
    if (kept_.size() > most_) kept_.pop_front();
  }
  // Those that are kept, the oldest first.
  [[nodiscard]] std::vector<Counts> Iterations() const { return {kept_.begin(), kept_.end()}; }

 private:
  const size_t most_;
  std::deque<Counts> kept_;
};

}  // namespace rewire::moe
