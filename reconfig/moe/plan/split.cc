#include "reconfig/moe/plan/split.h"

#include <algorithm>
#include <numeric>

namespace rewire::moe {
namespace {

class Assignment {
 public:
  Assignment(const Batch& batch, const SplitOptions& options, uint64_t capacity)
      : batch_(batch), options_(options), capacity_(capacity), effective_(Loads(batch)) {}

  // Experts are assigned in the order of the calls.
  void Assign(uint32_t expert, MovePlan* plan) {
    const uint32_t owner = batch_.owner[expert];
    // The expert's tokens are pending no more.
    effective_[owner] -= batch_.tokens[expert];
    uint64_t left = batch_.tokens[expert];
    const uint64_t kept = std::min(left, Room(owner));
    effective_[owner] += kept;
    left -= kept;
    const size_t first_move = plan->size();
    while (left > 0) {
      const uint32_t to = LeastLoadedBeside(owner);
      uint64_t chunk = std::min(left, Room(to));
      if (chunk < left && chunk < std::max(options_.least, 1U)) chunk = left;
      effective_[to] += chunk;
      left -= chunk;
      Add(first_move, {expert, to, 0, static_cast<uint32_t>(chunk)}, plan);
    }
    auto next = static_cast<uint32_t>(kept);
    for (size_t i = first_move; i < plan->size(); ++i) {
      (*plan)[i].first = next;
      next += (*plan)[i].tokens;
    }
  }

 private:
  [[nodiscard]] uint64_t Room(uint32_t device) const {
    return capacity_ > effective_[device] ? capacity_ - effective_[device] : 0;
  }

  [[nodiscard]] uint32_t LeastLoadedBeside(uint32_t owner) const {
    uint32_t least = owner == 0 ? 1 : 0;
    for (uint32_t d = least + 1; d < batch_.devices; ++d) {
      if (d != owner && effective_[d] < effective_[least]) least = d;
    }
    return least;
  }

  // A second chunk of an expert for one device needs no second copy of the weights.
  static void Add(size_t first_move, const Move& move, MovePlan* plan) {
    for (size_t i = first_move; i < plan->size(); ++i) {
      if ((*plan)[i].to != move.to) continue;
      (*plan)[i].tokens += move.tokens;
      return;
    }
    plan->push_back(move);
  }

  const Batch& batch_;
  const SplitOptions& options_;
  const uint64_t capacity_;
  std::vector<uint64_t> effective_;  // assigned and pending native tokens
};

}  // namespace

MovePlan SplitMoves(const Batch& batch, const SplitOptions& options) {
  const std::vector<uint64_t> loads = Loads(batch);
  const uint64_t sum = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
  const uint64_t most = *std::max_element(loads.begin(), loads.end());
  MovePlan plan;
  if (batch.devices == 1 || most * batch.devices * 100 < sum * options.gate_percent) return plan;
  const uint64_t capacity = sum / batch.devices * options.capacity_percent / 100;
  Assignment assignment(batch, options, std::max<uint64_t>(capacity, 1));
  std::vector<uint32_t> order(batch.tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return batch.tokens[a] > batch.tokens[b]; });
  for (const uint32_t e : order) assignment.Assign(e, &plan);
  return plan;
}

}  // namespace rewire::moe
