#include "reconfig/moe/plan/replica_balance.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace rewire::moe {
namespace {

// Searches moves that bring the devices of one node down to a level.
class Search {
 public:
  Search(const NodeTokens& node, const CopyBudget& budget)
      : node_(node),
        budget_(budget),
        before_(Loads(node)),
        own_(node.devices),
        tokens_(node.tokens) {
    for (uint32_t e = 0; e < node.experts; ++e) {
      for (uint32_t d = 0; d < node.devices; ++d) {
        if (node.replicas[At(e, d)] != 0) own_[d].push_back(e);
      }
    }
  }

  [[nodiscard]] uint64_t Most() const { return *std::max_element(before_.begin(), before_.end()); }
  [[nodiscard]] uint64_t Mean() const {  // the mean, rounded up
    const uint64_t sum = std::accumulate(before_.begin(), before_.end(), uint64_t{0});
    return (sum + node_.devices - 1) / node_.devices;
  }

  // Returns whether `*bytes` suffice for the level, and subtracts the cost from `*bytes`.
  bool Reach(uint64_t level, uint64_t* bytes) {
    loads_ = before_;
    tokens_ = node_.tokens;
    replicas_ = node_.replicas;
    held_ = own_;
    received_.assign(node_.devices, 0);
    for (;;) {
      while (PassOn(level)) {
      }
      const auto busiest =
          static_cast<uint32_t>(std::max_element(loads_.begin(), loads_.end()) - loads_.begin());
      if (loads_[busiest] <= level) return Spend(Moved() * budget_.token_bytes, bytes);
      if (!CopyFrom(busiest, level) || !Spend(budget_.expert_bytes, bytes)) return false;
    }
  }

  // Returns the plan for the level that was reached last. For each expert, devices with excess
  // tokens send to devices with room, both in the order of devices.
  [[nodiscard]] TransferPlan Plan() const {
    TransferPlan plan;
    std::vector<uint32_t> left = node_.tokens;
    for (uint32_t e = 0; e < node_.experts; ++e) {
      uint32_t from = 0;
      for (uint32_t to = 0; to < node_.devices; ++to) {
        while (left[At(e, to)] < tokens_[At(e, to)]) {
          while (left[At(e, from)] <= tokens_[At(e, from)]) ++from;
          const uint32_t tokens = std::min(left[At(e, from)] - tokens_[At(e, from)],
                                           tokens_[At(e, to)] - left[At(e, to)]);
          left[At(e, from)] -= tokens;
          left[At(e, to)] += tokens;
          plan.push_back({e, from, to, left[At(e, from)], tokens});
        }
      }
    }
    return plan;
  }

 private:
  // A step on the way to a device: tokens of the expert go there from another device.
  struct Step {
    uint32_t from = 0;
    uint32_t expert = 0;
  };

  [[nodiscard]] size_t At(uint32_t expert, uint32_t device) const {
    return size_t{expert} * node_.devices + device;
  }

  static bool Spend(uint64_t cost, uint64_t* bytes) {
    if (cost > *bytes) return false;
    *bytes -= cost;
    return true;
  }
  [[nodiscard]] uint64_t Moved() const {
    uint64_t moved = 0;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      moved += tokens_[i] - std::min(tokens_[i], node_.tokens[i]);
    }
    return moved;
  }

  // Moves tokens over the shortest way of replicas from a device above the level to one below.
  bool PassOn(uint64_t level) {
    way_.assign(node_.devices, Step{kNowhere, 0});
    queue_.clear();
    for (uint32_t d = 0; d < node_.devices; ++d) {
      if (loads_[d] <= level) continue;
      way_[d].from = d;
      queue_.push_back(d);
    }
    for (size_t i = 0; i < queue_.size(); ++i) {
      const uint32_t from = queue_[i];
      for (const uint32_t e : held_[from]) {
        if (tokens_[At(e, from)] == 0) continue;
        for (uint32_t d = 0; d < node_.devices; ++d) {
          if (replicas_[At(e, d)] == 0 || way_[d].from != kNowhere) continue;
          way_[d] = {from, e};
          if (loads_[d] < level) {
            MoveAlong(d, level);
            return true;
          }
          queue_.push_back(d);
        }
      }
    }
    return false;
  }

  void MoveAlong(uint32_t last, uint64_t level) {
    uint64_t tokens = level - loads_[last];
    uint32_t first = last;
    for (; way_[first].from != first; first = way_[first].from) {
      tokens = std::min<uint64_t>(tokens, tokens_[At(way_[first].expert, way_[first].from)]);
    }
    tokens = std::min(tokens, loads_[first] - level);
    for (uint32_t d = last; d != first; d = way_[d].from) {
      tokens_[At(way_[d].expert, way_[d].from)] -= static_cast<uint32_t>(tokens);
      tokens_[At(way_[d].expert, d)] += static_cast<uint32_t>(tokens);
    }
    loads_[first] -= tokens;
    loads_[last] += tokens;
  }

  // Copies the weights of one of the device's experts to the device with most room, if any.
  bool CopyFrom(uint32_t from, uint64_t level) {
    std::optional<uint32_t> to;
    for (uint32_t d = 0; d < node_.devices; ++d) {
      if (received_[d] < budget_.slots && (!to || loads_[d] < loads_[*to])) to = d;
    }
    if (!to || loads_[*to] >= level) return false;
    const uint32_t expert = Choose(from, std::min(loads_[from] - level, level - loads_[*to]));
    replicas_[At(expert, *to)] = 1;
    held_[*to].push_back(expert);
    ++received_[*to];
    return true;
  }

  // Chooses the smallest of the device's experts with `wanted` tokens there, or else the largest.
  [[nodiscard]] uint32_t Choose(uint32_t device, uint64_t wanted) const {
    uint32_t best = 0, tokens_of_best = 0;
    for (const uint32_t e : held_[device]) {
      const uint32_t tokens = tokens_[At(e, device)];
      const bool better = tokens_of_best < wanted ? tokens > tokens_of_best
                                                  : tokens >= wanted && tokens < tokens_of_best;
      if (!better) continue;
      best = e;
      tokens_of_best = tokens;
    }
    return best;
  }

  static constexpr uint32_t kNowhere = UINT32_MAX;
  const NodeTokens& node_;
  const CopyBudget& budget_;
  const std::vector<uint64_t> before_;
  std::vector<std::vector<uint32_t>> own_;  // experts of each device
  // The state at the level that is tried.
  std::vector<uint32_t> tokens_;  // tokens that devices compute at the level
  std::vector<uint8_t> replicas_;
  std::vector<std::vector<uint32_t>> held_;  // own_ and copied experts
  std::vector<uint32_t> received_;
  std::vector<uint64_t> loads_;
  std::vector<Step> way_;  // last step on the way to each device
  std::vector<uint32_t> queue_;
};

}  // namespace

std::vector<TransferPlan> BalanceReplicas(std::span<const NodeTokens> nodes,
                                          const CopyBudget& budget) {
  std::vector<Search> searches;
  searches.reserve(nodes.size());
  for (const NodeTokens& n : nodes) searches.emplace_back(n, budget);
  uint64_t low = 0, high = 0;
  for (const Search& s : searches) {
    low = std::max(low, s.Mean());
    high = std::max(high, s.Most());
  }
  std::vector<TransferPlan> best(nodes.size());
  const auto reach = [&](uint64_t level) {
    uint64_t bytes = budget.bytes;
    for (Search& s : searches) {
      if (!s.Reach(level, &bytes)) return false;
    }
    for (size_t i = 0; i < nodes.size(); ++i) best[i] = searches[i].Plan();
    return true;
  };
  if (reach(low)) return best;
  // A busiest load within 1/1024 of the mean above the minimum counts as even.
  const uint64_t fine = std::max<uint64_t>(low / 1024, 1);
  while (high - low > fine) {
    const uint64_t level = low + (high - low) / 2;
    (reach(level) ? high : low) = level;
  }
  return best;
}

}  // namespace rewire::moe
