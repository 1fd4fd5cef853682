// Where tokens go when an expert has several replicas: LAER-MoE's lite routing (arXiv 2602.11686
// and its public code). The tokens of a device for an expert are divided evenly among the replicas
// in its own node, where there are any, else among all; the remainder goes to the first ones, in
// the order of slots.
//
// What every device computes and what goes which way follows without a matrix of sources, experts
// and devices: a replica that is the i-th of r gets, of each source, the quotient by r, and one
// more of every source with a remainder above i. So the quotients are summed and the remainders
// counted, once for all replicas, and the work is devices * experts + slots.
//
// For one thread at a time: keeps memory between calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reconfig/moe/counts.h"
#include "reconfig/moe/placement.h"
#include "reconfig/moe/topology.h"

namespace rewire::moe {

struct RoutedTokens {
  std::vector<uint64_t> computed;  // by each device
  std::vector<uint64_t> of_slot;   // of them, by the placement's slots
  // By the way they go, of all devices together: nowhere (the device has the expert itself), to
  // another device of the node, to another node.
  uint64_t own = 0;
  uint64_t inside = 0;
  uint64_t between = 0;
  // Of each device, to and from other nodes.
  std::vector<uint64_t> leaving;
  std::vector<uint64_t> arriving;
  friend bool operator==(const RoutedTokens&, const RoutedTokens&) = default;
};

class LiteRouting {
 public:
  // counts: of as many devices as the topology has; outlives this.
  LiteRouting(const Topology& topology, const Counts& counts);

  // placement: Check() holds for it. The result is valid until the next call.
  const RoutedTokens& Route(const Placement& placement);

  // Tokens of a node's devices for an expert.
  [[nodiscard]] uint64_t OfNode(uint32_t node, uint32_t expert) const {
    return of_node_[size_t{node} * experts_ + expert];
  }
  // Tokens for each expert.
  [[nodiscard]] std::span<const uint64_t> of_expert() const { return of_expert_; }
  [[nodiscard]] uint64_t all() const;

 private:
  // What replicas that share the tokens of the same sources get: each `each`, and the i-th one more
  // of every source that is counted in the remainders at [first_remainder + i + 1] and after.
  struct Group {
    uint32_t replicas = 0;
    uint32_t first_remainder = 0;
    uint64_t each = 0;
  };

  void CountReplicas(const Placement& placement);
  void Divide();
  void GiveOut(const Placement& placement);
  void AddSource(Group* group, uint32_t tokens);
  // Turns counts of sources by their remainder into counts of sources with at least that one.
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
  std::vector<uint32_t> seen_local_;   // replicas given out so far, as local_
  std::vector<uint32_t> seen_remote_;  // as remote_
};

}  // namespace rewire::moe
