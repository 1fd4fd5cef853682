#include "reconfig/moe/plan/planners.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace rewire::moe {
namespace {

class Search {
 public:
  Search(const Batch& batch, const BalanceOptions& options)
      : batch_(batch), options_(options), before_(Loads(batch)), dynamic_(batch.devices) {
    for (uint32_t e = 0; e < batch.tokens.size(); ++e) {
      if (batch.dynamic[e] != 0 && batch.tokens[e] > 0) dynamic_[batch.owner[e]].push_back(e);
    }
  }

  MovePlan Run() {
    const uint64_t sum = std::accumulate(before_.begin(), before_.end(), uint64_t{0});
    const uint64_t most = *std::max_element(before_.begin(), before_.end());
    if (most * batch_.devices * 100 <= sum * options_.gate_percent) return {};
    uint64_t low = (sum + batch_.devices - 1) / batch_.devices;
    uint64_t high = most;
    // A busiest load within 1/1024 of the mean above the minimum counts as even.
    const uint64_t fine = std::max<uint64_t>(low / 1024, 1);
    MovePlan best, plan;
    if (Reach(low, &best)) return best;
    best.clear();
    while (high - low > fine) {
      const uint64_t level = low + (high - low) / 2;
      if (Reach(level, &plan)) {
        high = level;
        std::swap(best, plan);
      } else {
        low = level;
      }
    }
    return best;
  }

 private:
  // Returns whether the budget suffices to bring every device down to the level.
  bool Reach(uint64_t level, MovePlan* plan) {
    loads_ = before_;
    left_ = batch_.tokens;
    received_.assign(batch_.devices, 0);
    sent_.assign(batch_.devices * batch_.tokens.size(), 0);
    plan->clear();
    uint32_t copies = 0;
    for (;;) {
      const auto from =
          static_cast<uint32_t>(std::max_element(loads_.begin(), loads_.end()) - loads_.begin());
      if (loads_[from] <= level || loads_[from] - level < options_.least) return true;
      if (const std::optional<Move> move = WithoutCopy(from, level)) {
        Do(from, *move, plan);
        continue;
      }
      if (copies++ == options_.budget.copies) return false;
      const std::optional<uint32_t> to = Idlest();
      if (!to || loads_[*to] >= level) return false;
      const uint64_t room = level - loads_[*to];
      const std::optional<Move> move = Choose(from, *to, loads_[from] - level, room);
      if (!move || move->tokens < options_.least) return false;
      Do(from, *move, plan);
    }
  }

  void Do(uint32_t from, const Move& move, MovePlan* plan) {
    left_[move.expert] -= move.tokens;
    loads_[from] -= move.tokens;
    loads_[move.to] += move.tokens;
    ++received_[move.to];
    sent_[At(move.expert, move.to)] = 1;
    plan->push_back(move);
  }

  [[nodiscard]] size_t At(uint32_t expert, uint32_t device) const {
    return device * batch_.tokens.size() + expert;
  }

  // Returns the largest part of `from`'s surplus that can go to a device with the weights.
  [[nodiscard]] std::optional<Move> WithoutCopy(uint32_t from, uint64_t level) const {
    std::optional<Move> most;
    if (options_.there.empty()) return most;
    for (const uint32_t e : dynamic_[from]) {
      for (uint32_t to = 0; to < batch_.devices; ++to) {
        if (options_.there[At(e, to)] == 0 || loads_[to] >= level ||
            received_[to] == options_.budget.slots || sent_[At(e, to)] != 0) {
          continue;
        }
        const auto tokens = static_cast<uint32_t>(
            std::min({loads_[from] - level, level - loads_[to], uint64_t{left_[e]}}));
        if (tokens >= std::max(options_.least, 1U) && (!most || tokens > most->tokens)) {
          most = Move{e, to, left_[e] - tokens, tokens};
        }
      }
    }
    return most;
  }

  [[nodiscard]] std::optional<uint32_t> Idlest() const {
    std::optional<uint32_t> idlest;
    for (uint32_t d = 0; d < batch_.devices; ++d) {
      if (received_[d] < options_.budget.slots && (!idlest || loads_[d] < loads_[*idlest])) {
        idlest = d;
      }
    }
    return idlest;
  }

  // Chooses among the experts of `from`: the smallest that removes all the surplus and fits as a
  // whole. Otherwise takes a part of the smallest that is large enough, or else the largest.
  [[nodiscard]] std::optional<Move> Choose(uint32_t from, uint32_t to, uint64_t surplus,
                                           uint64_t room) const {
    const uint64_t wanted = std::min(surplus, room);
    std::optional<uint32_t> fits;
    std::optional<uint32_t> enough;
    std::optional<uint32_t> largest;
    for (const uint32_t e : dynamic_[from]) {
      const uint32_t tokens = left_[e];
      if (tokens == 0 || sent_[At(e, to)] != 0) continue;
      if (tokens >= surplus && tokens <= room && (!fits || tokens < left_[*fits])) fits = e;
      if (tokens >= wanted && (!enough || tokens < left_[*enough])) enough = e;
      if (!largest || tokens > left_[*largest]) largest = e;
    }
    if (fits) return Move{*fits, to, 0, left_[*fits]};
    if (enough) {
      const auto part = static_cast<uint32_t>(wanted);
      return Move{*enough, to, left_[*enough] - part, part};
    }
    if (largest) return Move{*largest, to, 0, left_[*largest]};
    return {};
  }

  const Batch& batch_;
  const BalanceOptions& options_;
  const std::vector<uint64_t> before_;
  std::vector<std::vector<uint32_t>> dynamic_;  // the dynamic experts of each device
  std::vector<uint64_t> loads_;
  std::vector<uint32_t> left_;
  std::vector<uint32_t> received_;
  std::vector<uint8_t> sent_;  // [device * experts + expert]: such a move is planned
};

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

MovePlan BalanceMoves(const Batch& batch, const BalanceOptions& options) {
  return Search(batch, options).Run();
}

uint64_t LowestPossible(const Batch& batch) {
  std::vector<uint64_t> fixed(batch.devices);
  uint64_t sum = 0;
  for (size_t e = 0; e < batch.tokens.size(); ++e) {
    sum += batch.tokens[e];
    if (batch.dynamic[e] == 0) fixed[batch.owner[e]] += batch.tokens[e];
  }
  return std::max((sum + batch.devices - 1) / batch.devices,
                  *std::max_element(fixed.begin(), fixed.end()));
}

MovePlan GreedyMoves(const Batch& batch, const GreedyOptions& options) {
  std::vector<uint64_t> loads = Loads(batch);
  std::vector<uint32_t> received(batch.devices);
  std::vector<uint8_t> here = batch.dynamic;  // dynamic and still on its owner
  MovePlan plan;
  while (plan.size() < options.budget.copies) {
    const auto busiest =
        static_cast<uint32_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
    std::optional<uint32_t> idlest;
    for (uint32_t d = 0; d < batch.devices; ++d) {
      if (received[d] < options.budget.slots && (!idlest || loads[d] < loads[*idlest])) idlest = d;
    }
    if (!idlest) break;
    std::optional<uint32_t> expert;
    for (uint32_t e = 0; e < batch.tokens.size(); ++e) {
      const uint32_t tokens = batch.tokens[e];
      if (here[e] == 0 || batch.owner[e] != busiest || tokens < std::max(options.least, 1U)) {
        continue;
      }
      if (loads[*idlest] + tokens >= loads[busiest]) continue;
      if (!expert || tokens > batch.tokens[*expert]) expert = e;
    }
    if (!expert) break;
    const uint32_t tokens = batch.tokens[*expert];
    plan.push_back({*expert, *idlest, 0, tokens});
    here[*expert] = 0;
    loads[busiest] -= tokens;
    loads[*idlest] += tokens;
    ++received[*idlest];
  }
  return plan;
}

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
