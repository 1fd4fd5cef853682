#include "reconfig/moe/plan/node_tokens.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/base/hash.h"

namespace rewire::moe {

absl::Status Check(const NodeTokens& node) {
  const size_t entries = size_t{node.experts} * node.devices;
  if (node.devices == 0) return absl::InvalidArgumentError("node: devices=0: must be at least 1");
  if (node.tokens.size() != entries || node.replicas.size() != entries) {
    return absl::InvalidArgumentError(
        absl::StrCat("node: tokens=", node.tokens.size(), " replicas=", node.replicas.size(),
                     ": must each be ", entries, " (pairs of expert and device)"));
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < entries; ++i) {
    sum += node.tokens[i];
    if (node.tokens[i] == 0 || node.replicas[i] != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("device ", i % node.devices,
                                                   " has tokens of expert ", i / node.devices,
                                                   ", but not its weights"));
  }
  if (sum > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("node: tokens=", sum, ": must be at most 2^32 - 1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<NodeTokens> TokensOfNode(const RoutedTokens& routed, const Placement& placement,
                                        const Topology& topology, uint32_t experts, uint32_t node) {
  const uint32_t devices = topology.per_node;
  const size_t entries = size_t{experts} * devices;
  NodeTokens out{devices, experts, std::vector<uint32_t>(entries), std::vector<uint8_t>(entries)};
  uint64_t sum = 0;
  size_t slot = size_t{node} * devices * placement.capacity;
  for (uint32_t d = 0; d < devices; ++d) {
    for (uint32_t s = 0; s < placement.capacity; ++s, ++slot) {
      const uint32_t e = placement.slots[slot];
      if (e == kEmptySlot) continue;
      sum += routed.of_slot[slot];
      out.tokens[size_t{e} * devices + d] += static_cast<uint32_t>(routed.of_slot[slot]);
      out.replicas[size_t{e} * devices + d] = 1;
    }
  }
  if (sum > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", node, ": tokens=", sum, ": must be at most 2^32 - 1"));
  }
  return out;
}

std::vector<uint64_t> Loads(const NodeTokens& node) {
  std::vector<uint64_t> loads(node.devices);
  for (size_t i = 0; i < node.tokens.size(); ++i) loads[i % node.devices] += node.tokens[i];
  return loads;
}

std::vector<uint64_t> Loads(const NodeTokens& node, const TransferPlan& plan) {
  std::vector<uint64_t> loads = Loads(node);
  for (const Transfer& t : plan) {
    loads[t.from] -= t.tokens;
    loads[t.to] += t.tokens;
  }
  return loads;
}

std::vector<uint64_t> Loads(std::span<const NodeTokens> nodes,
                            std::span<const TransferPlan> plans) {
  std::vector<uint64_t> all;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const std::vector<uint64_t> loads = Loads(nodes[n], plans[n]);
    all.insert(all.end(), loads.begin(), loads.end());
  }
  return all;
}

uint64_t Copied::Bytes(const CopyBudget& budget) const {
  uint64_t of_experts = 0, of_tokens = 0, sum = 0;
  const bool too_many = __builtin_mul_overflow(budget.expert_bytes, experts, &of_experts) ||
                        __builtin_mul_overflow(budget.token_bytes, tokens, &of_tokens) ||
                        __builtin_add_overflow(of_experts, of_tokens, &sum);
  return too_many ? UINT64_MAX : sum;
}

Copied CopiedBy(const NodeTokens& node, const TransferPlan& plan) {
  Copied copied;
  std::vector<uint8_t> replicas = node.replicas;
  for (const Transfer& t : plan) {
    uint8_t& there = replicas[size_t{t.expert} * node.devices + t.to];
    copied.experts += there == 0 ? 1 : 0;
    copied.tokens += t.tokens;
    there = 1;
  }
  return copied;
}

Copied CopiedBy(std::span<const NodeTokens> nodes, std::span<const TransferPlan> plans) {
  Copied all;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Copied copied = CopiedBy(nodes[n], plans[n]);
    all.experts += copied.experts;
    all.tokens += copied.tokens;
  }
  return all;
}

absl::Status Check(const NodeTokens& node, const TransferPlan& plan, const CopyBudget& budget) {
  for (const Transfer& t : plan) {
    const auto wrong = [&](const auto&... why) {
      return absl::InvalidArgumentError(absl::StrCat("expert ", t.expert, " from device ", t.from,
                                                     " to device ", t.to, ": ", why...));
    };
    if (t.expert >= node.experts || std::max(t.from, t.to) >= node.devices) {
      return wrong("no such expert or device");
    }
    if (t.to == t.from) return wrong("the devices must differ");
    if (t.tokens == 0) return wrong("tokens=0: must be at least 1");
    const uint32_t has = node.tokens[size_t{t.expert} * node.devices + t.from];
    if (uint64_t{t.first} + t.tokens > has) {
      return wrong("tokens up to ", uint64_t{t.first} + t.tokens, ": must be at most ", has);
    }
    for (const Transfer& other : plan) {
      if (&other == &t) break;
      const bool same = other.expert == t.expert && other.from == t.from;
      if (same && other.first < t.first + t.tokens && t.first < other.first + other.tokens) {
        return wrong("tokens are moved twice");
      }
    }
  }
  std::vector<uint8_t> replicas = node.replicas;
  std::vector<uint32_t> received(node.devices);
  for (const Transfer& t : plan) {
    uint8_t& there = replicas[size_t{t.expert} * node.devices + t.to];
    if (there == 0 && ++received[t.to] > budget.slots) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan: device ", t.to, ": must receive at most ", budget.slots, " experts"));
    }
    there = 1;
  }
  const uint64_t bytes = CopiedBy(node, plan).Bytes(budget);
  if (bytes > budget.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan: bytes=", bytes, ": must be at most ", budget.bytes));
  }
  return absl::OkStatus();
}

uint64_t Hash(const TransferPlan& plan) {
  uint64_t hash = plan.size();
  for (const Transfer& t : plan) {
    hash = MixWord(hash, uint64_t{t.expert} << 32 | t.first);
    hash = MixWord(hash, uint64_t{t.from} << 32 | t.to);
    hash = MixWord(hash, t.tokens);
  }
  return hash;
}

ReplicaBatch ReplicasAsExperts(const NodeTokens& node, std::span<const uint64_t> history,
                               uint32_t dynamic) {
  ReplicaBatch out;
  out.batch.devices = node.devices;
  std::vector<uint32_t> order;
  for (uint32_t d = 0; d < node.devices; ++d) {
    const auto first = static_cast<uint32_t>(out.expert.size());
    order.clear();
    for (uint32_t e = 0; e < node.experts; ++e) {
      const size_t at = size_t{e} * node.devices + d;
      if (node.replicas[at] == 0) continue;
      order.push_back(static_cast<uint32_t>(out.expert.size()));
      out.expert.push_back(e);
      out.batch.tokens.push_back(node.tokens[at]);
      out.batch.owner.push_back(d);
    }
    out.batch.dynamic.resize(out.expert.size());
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return history[out.expert[a]] > history[out.expert[b]];
    });
    const size_t some = std::min<size_t>(dynamic, out.expert.size() - first);
    for (size_t i = 0; i < some; ++i) out.batch.dynamic[order[i]] = 1;
  }
  return out;
}

TransferPlan ToTransfers(const ReplicaBatch& replicas, const MovePlan& plan) {
  TransferPlan out;
  for (const Move& m : plan) {
    out.push_back(
        {replicas.expert[m.expert], replicas.batch.owner[m.expert], m.to, m.first, m.tokens});
  }
  return out;
}

}  // namespace rewire::moe
