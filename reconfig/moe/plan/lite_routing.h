// Routes tokens to the replicas of their expert: LAER-MoE's lite routing (arXiv 2602.11686 and its
// public code). A device's tokens for an expert are divided evenly among the replicas in the
// device's own node. If the node has no replica, the tokens are divided among all replicas. The
// remainder goes to the first replicas, in the order of slots.
//
// The result needs no matrix of sources, experts and devices. Replica i of r gets, from each
// source, the quotient by r. The replica gets one more token from every source with a remainder
// above i. So the quotients are summed and the remainders counted, once for all replicas. The work
// is devices * experts + slots.
//
// Thread-compatible: an object keeps memory between calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/placement.h"

namespace rewire::moe {

struct RoutedTokens {
  std::vector<uint64_t> computed;  // tokens that each device computes
  std::vector<uint64_t> of_slot;   // the same tokens, by the placement's slots
  // Tokens of all devices by destination: the same device (which has the expert), another device of
  // the node, another node.
  uint64_t own = 0;
  uint64_t inside = 0;
  uint64_t between = 0;
  // Tokens of each device to and from other nodes.
  std::vector<uint64_t> leaving;
  std::vector<uint64_t> arriving;
  friend bool operator==(const RoutedTokens&, const RoutedTokens&) = default;
};

class LiteRouting {
 public:
  // `counts` has as many devices as `topology` and must outlive this object.
  LiteRouting(const Topology& topology, const Counts& counts);

  // `placement` has passed Check(). The result is valid until the next call.
  const RoutedTokens& Route(const Placement& placement);

  // Returns the tokens that a node's devices have for an expert.
  [[nodiscard]] uint64_t OfNode(uint32_t node, uint32_t expert) const {
    return of_node_[size_t{node} * experts_ + expert];
  }
  // Returns the tokens for each expert.
  [[nodiscard]] std::span<const uint64_t> of_expert() const { return of_expert_; }
  [[nodiscard]] uint64_t all() const;

 private:
  // Each replica's share in the tokens of the same sources. Replica i gets `each` tokens, and one
  // from every source that is counted in the remainders at [first_remainder + i + 1] and after.
  struct Group {
    uint32_t replicas = 0;
    uint32_t first_remainder = 0;
    uint64_t each = 0;
  };

  void CountReplicas(const Placement& placement);
  void Divide();
  void GiveOut(const Placement& placement);
  void AddSource(Group* group, uint32_t tokens);
  // Turns the counts of sources by remainder into counts of sources with at least that remainder.
  void Accumulate(const Group& group);

  const Topology topology_;
  const Counts& counts_;
  const uint32_t experts_;
  std::vector<uint64_t> of_node_;  // [node * experts + expert]
  std::vector<uint64_t> of_expert_;

  RoutedTokens routed_;
  std::vector<Group> local_;   // [node * experts + expert]: for the node's own sources
  std::vector<Group> remote_;  // [expert]: for sources of nodes without a replica
  std::vector<uint32_t> remainders_;
  std::vector<uint32_t> seen_local_;   // replicas that GiveOut() has served, indexed as local_
  std::vector<uint32_t> seen_remote_;  // the same, indexed as remote_
};

}  // namespace rewire::moe
