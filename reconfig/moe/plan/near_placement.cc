#include "reconfig/moe/plan/near_placement.h"

#include <algorithm>
#include <span>
#include <vector>

namespace rewire::moe {
namespace {

// A node's first replica of an expert comes before any node's second.
constexpr uint64_t kFirst = uint64_t{1} << 62;

// Tokens that `replicas` replicas share.
struct Share {
  uint64_t tokens = 0;
  uint32_t replicas = 0;
  uint32_t expert = 0;
  // Orders by tokens per replica.
  friend bool operator<(const Share& a, const Share& b) {
    const uint64_t left = a.tokens * b.replicas, right = b.tokens * a.replicas;
    if (left != right) return left < right;
    return a.tokens != b.tokens ? a.tokens < b.tokens : a.expert > b.expert;
  }
};

// The load of a replica is kept in 1/2^16 tokens, as in reconfig/moe/plan/placement.cc.
constexpr int kFraction = 16;

struct Replica {
  uint64_t load = 0;
  uint32_t expert = 0;
  uint32_t copies = 0;  // replicas of the expert in the node
};

// The replicas that each node must place, those with most load first.
class Replicas {
 public:
  Replicas(const LiteRouting& tokens, const Topology& topology, const NodeCopies& copies)
      : remote_(tokens.of_expert().size()) {
    const size_t experts = remote_.size();
    std::vector<uint32_t> all(experts);
    for (uint32_t n = 0; n < topology.nodes; ++n) {
      for (uint32_t e = 0; e < experts; ++e) {
        const uint32_t here = copies[n * experts + e];
        all[e] += here;
        if (here == 0) remote_[e] += tokens.OfNode(n, e);
      }
    }
    for (size_t e = 0; e < experts; ++e) remote_[e] = (remote_[e] << kFraction) / all[e];
    replicas_.reserve(copies.size());
    for (uint32_t n = 0; n < topology.nodes; ++n) AddNode(tokens, n, &copies[n * experts]);
  }
  [[nodiscard]] std::span<const Replica> OfNode(uint32_t node) const {
    const size_t begin = node == 0 ? 0 : end_[node - 1];
    return std::span(replicas_).subspan(begin, end_[node] - begin);
  }

 private:
  void AddNode(const LiteRouting& tokens, uint32_t node, const uint32_t* copies) {
    const auto begin = static_cast<ptrdiff_t>(replicas_.size());
    for (uint32_t e = 0; e < remote_.size(); ++e) {
      if (copies[e] == 0) continue;
      const uint64_t local = (tokens.OfNode(node, e) << kFraction) / copies[e];
      replicas_.push_back({local + remote_[e], e, copies[e]});
    }
    std::sort(replicas_.begin() + begin, replicas_.end(), [](const Replica& a, const Replica& b) {
      return a.load != b.load ? a.load > b.load : a.expert < b.expert;
    });
    end_.push_back(replicas_.size());
  }

  std::vector<uint64_t> remote_;  // load of each expert's replicas from nodes without a replica
  std::vector<Replica> replicas_;
  std::vector<size_t> end_;  // end of each node's part of replicas_
};

// The devices of one node. The loops are branch-free because the branches would be unpredictable.
class Devices {
 public:
  Devices(uint32_t count, uint32_t capacity) : load_(count), used_(count), capacity_(capacity) {}

  void Clear() {
    std::fill(load_.begin(), load_.end(), 0);
    std::fill(used_.begin(), used_.end(), 0);
  }
  [[nodiscard]] uint32_t LeastLoaded() const {
    uint32_t least = 0;
    uint64_t load = load_[0];
    for (uint32_t d = 1; d < load_.size(); ++d) {
      least = load_[d] < load ? d : least;
      load = std::min(load_[d], load);
    }
    return least;
  }
  // own: tokens of each device for the expert, `stride` apart.
  [[nodiscard]] uint32_t Nearest(uint64_t load, uint64_t limit, const uint32_t* own,
                                 size_t stride) const {
    if (load > limit) return LeastLoaded();
    const uint64_t room = limit - load;  // full devices have the largest load
    uint64_t best = 0;                   // (tokens + 1) and device; 0: none fits
    for (uint32_t d = 0; d < load_.size(); ++d, own += stride) {
      const uint64_t fits = load_[d] <= room ? UINT64_MAX : 0;
      best = std::max(best, ((uint64_t{*own} + 1) << kDeviceBits | (kLastDevice - d)) & fits);
    }
    return best > 0 ? static_cast<uint32_t>(kLastDevice - (best & kLastDevice)) : LeastLoaded();
  }
  // Returns the slot that the device gives to the replica.
  uint32_t Give(uint32_t device, uint64_t load) {
    load_[device] += load;
    most_ = std::max(most_, load_[device]);
    if (used_[device] + 1 == capacity_) load_[device] = UINT64_MAX;
    return used_[device]++;
  }
  // Returns the largest load of all devices since the first.
  [[nodiscard]] uint64_t most() const { return most_; }

 private:
  static constexpr int kDeviceBits = 20;  // more bits than device numbers need
  static constexpr uint64_t kLastDevice = (uint64_t{1} << kDeviceBits) - 1;
  std::vector<uint64_t> load_;  // UINT64_MAX if all slots are used
  std::vector<uint32_t> used_;
  const uint32_t capacity_;
  uint64_t most_ = 0;
};

}  // namespace

NodeCopies DivideByDemand(const LiteRouting& tokens, const Topology& topology, uint32_t capacity,
                          std::span<const uint32_t> replicas) {
  const auto experts = static_cast<uint32_t>(replicas.size());
  std::vector<Share> order(experts);
  for (uint32_t e = 0; e < experts; ++e) order[e] = {tokens.of_expert()[e], replicas[e], e};
  std::sort(order.begin(), order.end(), [](const Share& a, const Share& b) { return b < a; });

  NodeCopies copies(size_t{topology.nodes} * experts);
  std::vector<uint32_t> room(topology.nodes, topology.per_node * capacity);
  std::vector<uint64_t> want(topology.nodes);
  for (const Share& expert : order) {
    for (uint32_t n = 0; n < topology.nodes; ++n) {
      want[n] = room[n] == 0 ? 0 : kFirst + tokens.OfNode(n, expert.expert);
    }
    for (uint32_t r = 0; r < expert.replicas; ++r) {
      uint32_t best = 0;
      uint64_t most = want[0];
      for (uint32_t n = 1; n < topology.nodes; ++n) {
        best = want[n] > most ? n : best;
        most = std::max(want[n], most);
      }
      const uint32_t here = ++copies[size_t{best} * experts + expert.expert];
      want[best] = --room[best] == 0 ? 0 : 1 + tokens.OfNode(best, expert.expert) / here;
    }
  }
  return copies;
}

std::optional<NodeCopies> CopiesByDemand(const LiteRouting& tokens, const Topology& topology,
                                         uint32_t capacity) {
  const auto experts = static_cast<uint32_t>(tokens.of_expert().size());
  const uint32_t slots = topology.per_node * capacity;
  if (slots < experts) return std::nullopt;
  NodeCopies copies(size_t{topology.nodes} * experts);
  std::vector<Share> shares(experts);
  for (uint32_t n = 0; n < topology.nodes; ++n) {
    uint64_t all = 0;
    for (uint32_t e = 0; e < experts; ++e) all += tokens.OfNode(n, e);
    // Giving slots one by one to the largest share gives each expert at least this quota. The loop
    // below gives the remaining slots that way.
    uint32_t used = 0;
    for (uint32_t e = 0; e < experts; ++e) {
      const uint64_t here = tokens.OfNode(n, e);
      const uint64_t quota = here * (slots - experts) / std::max<uint64_t>(1, all);
      shares[e] = {here, std::max(1u, static_cast<uint32_t>(quota)), e};
      used += shares[e].replicas;
    }
    std::make_heap(shares.begin(), shares.end());
    for (; used < slots; ++used) {
      std::pop_heap(shares.begin(), shares.end());
      ++shares.back().replicas;
      std::push_heap(shares.begin(), shares.end());
    }
    for (const Share& s : shares) copies[size_t{n} * experts + s.expert] = s.replicas;
  }
  return copies;
}

NearPlacement PlaceNear(const LiteRouting& tokens, const Counts& counts, const Topology& topology,
                        uint32_t capacity, const NodeCopies& copies) {
  const Replicas replicas(tokens, topology, copies);
  const Placement empty{capacity,
                        std::vector<uint32_t>(size_t{topology.devices()} * capacity, kEmptySlot)};
  NearPlacement result{empty, empty};
  Devices devices(topology.per_node, capacity);
  for (uint32_t n = 0; n < topology.nodes; ++n) {
    uint32_t* slots = &result.level.slots[size_t{n} * topology.per_node * capacity];
    devices.Clear();
    for (const Replica& replica : replicas.OfNode(n)) {
      for (uint32_t r = 0; r < replica.copies; ++r) {
        const uint32_t d = devices.LeastLoaded();
        slots[d * capacity + devices.Give(d, replica.load)] = replica.expert;
      }
    }
  }
  const uint64_t limit = devices.most();
  for (uint32_t n = 0; n < topology.nodes; ++n) {
    const size_t first = size_t{n} * topology.per_node;
    uint32_t* slots = &result.near.slots[first * capacity];
    devices.Clear();
    for (const Replica& replica : replicas.OfNode(n)) {
      const uint32_t* own = &counts.tokens()[first * counts.experts() + replica.expert];
      for (uint32_t r = 0; r < replica.copies; ++r) {
        const uint32_t d = devices.Nearest(replica.load, limit, own, counts.experts());
        slots[d * capacity + devices.Give(d, replica.load)] = replica.expert;
      }
    }
  }
  return result;
}

}  // namespace rewire::moe
