// Transformers of ordinary sizes in two parallel worlds, from a seed: what plan_perf plans.
// Owned by one thread.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "reconfig/state/plan/plan.h"

namespace rewire::bench {

struct ModelSizes {
  uint64_t hidden = 4096;
  uint32_t layers = 32;
  uint32_t matrices = 4;  // of a layer: fused QKV, projection, up, down, in turn
  uint32_t experts = 0;   // of each layer; 0: no layer of experts
  bool optimizer = true;  // each parameter has master, exp_avg, exp_avg_sq
};

// Returns the tensors, in the order of layers.
std::vector<state::LogicalTensor> TensorsOf(const ModelSizes& sizes);

// A change from one world to another. Nodes have 8 slots each; whole nodes and single members leave
// and come.
class AnyModelChange {
 public:
  // Either world has at most max_slots.
  AnyModelChange(uint64_t seed, uint32_t max_slots);

  [[nodiscard]] state::SeatedLayout from() const { return {&layouts_[0], old_seats_}; }
  [[nodiscard]] const state::ParallelLayout& to() const { return layouts_[1]; }
  // The members of the new world, ascending.
  [[nodiscard]] const std::vector<state::Seat>& members() const { return members_; }

 private:
  uint64_t In(uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(random_);
  }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return *(values.begin() + In(0, values.size() - 1));
  }
  state::Parallel NewParallel(const ModelSizes& sizes, uint32_t max_slots);

  std::mt19937_64 random_;
  std::vector<state::ParallelLayout> layouts_;
  std::vector<state::Seat> old_seats_;
  std::vector<state::Seat> members_;
};

}  // namespace rewire::bench
