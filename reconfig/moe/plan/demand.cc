#include "reconfig/moe/plan/demand.h"

#include <algorithm>

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

}  // namespace rewire::moe
