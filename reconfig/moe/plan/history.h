// Keeps the counts of a layer's last iterations for planning re-layouts. A single iteration
// predicts the next one poorly. Thread-compatible.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "reconfig/moe/plan/counts.h"

namespace rewire::moe {

class History {
 public:
  // iterations: number of iterations to keep, at least one. LAER-MoE keeps 5.
  explicit History(size_t iterations) : most_(iterations) {}

  // `counts` must have the same devices and experts as the counts before.
  void Add(Counts counts) {
    kept_.push_back(std::move(counts));
    if (kept_.size() > most_) kept_.pop_front();
  }
  // Returns the kept counts, the oldest first.
  [[nodiscard]] std::vector<Counts> Iterations() const { return {kept_.begin(), kept_.end()}; }

 private:
  const size_t most_;
  std::deque<Counts> kept_;
};

}  // namespace rewire::moe
