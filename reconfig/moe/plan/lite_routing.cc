#include "reconfig/moe/plan/lite_routing.h"

#include <algorithm>
#include <numeric>

namespace rewire::moe {

LiteRouting::LiteRouting(const Topology& topology, const Counts& counts)
    : topology_(topology),
      counts_(counts),
      experts_(counts.experts()),
      of_node_(size_t{topology.nodes} * counts.experts()),
      of_expert_(counts.experts()),
      local_(of_node_.size()),
      remote_(experts_),
      seen_local_(experts_),
      seen_remote_(experts_) {
  const uint32_t* row = counts.tokens().data();
  for (uint32_t node = 0; node < topology.nodes; ++node) {
    uint64_t* of_node = &of_node_[size_t{node} * experts_];
    for (uint32_t d = 0; d < topology.per_node; ++d, row += experts_) {
      for (uint32_t e = 0; e < experts_; ++e) of_node[e] += row[e];
    }
    for (uint32_t e = 0; e < experts_; ++e) of_expert_[e] += of_node[e];
  }
}

uint64_t LiteRouting::all() const {
  return std::accumulate(of_expert_.begin(), of_expert_.end(), uint64_t{0});
}

const RoutedTokens& LiteRouting::Route(const Placement& placement) {
  CountReplicas(placement);
  Divide();
  GiveOut(placement);
  return routed_;
}

void LiteRouting::CountReplicas(const Placement& placement) {
  std::fill(local_.begin(), local_.end(), Group{});
  std::fill(remote_.begin(), remote_.end(), Group{});
  const size_t per_node = size_t{topology_.per_node} * placement.capacity;
  const uint32_t* slot = placement.slots.data();
  for (uint32_t node = 0; node < topology_.nodes; ++node) {
    Group* local = &local_[size_t{node} * experts_];
    for (size_t s = 0; s < per_node; ++s, ++slot) {
      if (*slot == kEmptySlot) continue;
      ++local[*slot].replicas;
      ++remote_[*slot].replicas;
    }
  }
  uint32_t next = 0;
  for (std::vector<Group>* groups : {&local_, &remote_}) {
    for (Group& g : *groups) {
      g.first_remainder = next;
      next += g.replicas + 1;
    }
  }
  remainders_.assign(next, 0);
}

void LiteRouting::AddSource(Group* group, uint32_t tokens) {
  group->each += tokens / group->replicas;
  ++remainders_[group->first_remainder + tokens % group->replicas];
}

void LiteRouting::Accumulate(const Group& group) {
  for (uint32_t i = group.replicas; i > 0; --i) {
    remainders_[group.first_remainder + i - 1] += remainders_[group.first_remainder + i];
  }
}

void LiteRouting::Divide() {
  routed_.leaving.assign(topology_.devices(), 0);
  routed_.between = 0;
  for (uint32_t node = 0; node < topology_.nodes; ++node) {
    const uint32_t first = node * topology_.per_node;
    const uint32_t last = first + topology_.per_node;
    for (uint32_t e = 0; e < experts_; ++e) {
      Group& local = local_[size_t{node} * experts_ + e];
      if (local.replicas == 1) {
        local.each = OfNode(node, e);
      } else if (local.replicas > 1) {
        for (uint32_t d = first; d < last; ++d) AddSource(&local, counts_.at(d, e));
        Accumulate(local);
      } else if (OfNode(node, e) != 0) {
        for (uint32_t d = first; d < last; ++d) {
          routed_.leaving[d] += counts_.at(d, e);
          AddSource(&remote_[e], counts_.at(d, e));
        }
        routed_.between += OfNode(node, e);
      }
    }
  }
  for (const Group& remote : remote_) Accumulate(remote);
}

void LiteRouting::GiveOut(const Placement& placement) {
  routed_.computed.assign(topology_.devices(), 0);
  routed_.of_slot.assign(placement.slots.size(), 0);
  routed_.arriving.assign(topology_.devices(), 0);
  routed_.own = 0;
  std::fill(seen_remote_.begin(), seen_remote_.end(), 0);
  uint64_t computed = 0;
  const uint32_t* slot = placement.slots.data();
  for (uint32_t d = 0; d < topology_.devices(); ++d) {
    const uint32_t node = d / topology_.per_node;
    if (d % topology_.per_node == 0) std::fill(seen_local_.begin(), seen_local_.end(), 0);
    for (uint32_t s = 0; s < placement.capacity; ++s, ++slot) {
      const uint32_t e = *slot;
      if (e == kEmptySlot) continue;
      const Group& local = local_[size_t{node} * experts_ + e];
      const Group& remote = remote_[e];
      const uint32_t i = seen_local_[e]++, j = seen_remote_[e]++;
      const uint64_t from_node = local.each + remainders_[local.first_remainder + i + 1];
      const uint64_t from_others = remote.each + remainders_[remote.first_remainder + j + 1];
      const uint32_t of_this = counts_.at(d, e);
      routed_.own += of_this / local.replicas + (of_this % local.replicas > i ? 1 : 0);
      routed_.of_slot[size_t{d} * placement.capacity + s] = from_node + from_others;
      routed_.computed[d] += from_node + from_others;
      routed_.arriving[d] += from_others;
    }
    computed += routed_.computed[d];
  }
  routed_.inside = computed - routed_.between - routed_.own;
}

}  // namespace rewire::moe
