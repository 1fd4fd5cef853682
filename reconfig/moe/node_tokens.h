// One micro-batch of one mixture-of-experts layer inside one node, after it was dispatched to a
// placement in which experts may have replicas: which device has which tokens, and whose weights.
// What is to be moved between the node's devices is planned from this; Batch (reconfig/moe/batch.h)
// is the case without replicas. Plans are pure functions of it in integers, ties by lowest number.
// Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/moe/lite_routing.h"
#include "reconfig/moe/placement.h"
#include "reconfig/moe/topology.h"

namespace rewire::moe {

struct NodeTokens {
  uint32_t devices = 0;
  uint32_t experts = 0;
  // Both at [expert * devices + device].
  std::vector<uint32_t> tokens;   // that the device has; in all below 2^32
  std::vector<uint8_t> replicas;  // 1: the device has the expert's weights
};
// Names the first entry that cannot be: tokens are where weights are.
[[nodiscard]] absl::Status Check(const NodeTokens& node);

// Of one node; `routed` is LiteRouting's of the placement. Fails where the node has too many
// tokens.
[[nodiscard]] absl::StatusOr<NodeTokens> TokensOfNode(const RoutedTokens& routed,
                                                      const Placement& placement,
                                                      const Topology& topology, uint32_t experts,
                                                      uint32_t node);

// `to` computes tokens [first, first + tokens) of the expert, counted in the order in which `from`
// has them, which keeps those that no transfer names.
struct Transfer {
  uint32_t expert = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t first = 0;
  uint32_t tokens = 0;
  friend bool operator==(const Transfer&, const Transfer&) = default;
};
// In the order in which copies are to be made. The first transfer of an expert to a device without
// its weights copies them, too.
using TransferPlan = std::vector<Transfer>;

// What may be copied inside nodes for one micro-batch.
struct CopyBudget {
  uint64_t bytes = UINT64_MAX;  // of weights and tokens, all devices together
  uint64_t expert_bytes = 0;    // of an expert's weights
  uint32_t token_bytes = 0;
  uint32_t slots = 8;  // experts that one device has room for beside those it has
};

// Tokens that each device computes.
[[nodiscard]] std::vector<uint64_t> Loads(const NodeTokens& node);
[[nodiscard]] std::vector<uint64_t> Loads(const NodeTokens& node, const TransferPlan& plan);
// Of all nodes, a plan for each.
[[nodiscard]] std::vector<uint64_t> Loads(std::span<const NodeTokens> nodes,
                                          std::span<const TransferPlan> plans);

// What a plan copies; 2^64 - 1 for more than that.
struct Copied {
  uint32_t experts = 0;  // weights of
  uint64_t tokens = 0;
  [[nodiscard]] uint64_t Bytes(const CopyBudget& budget) const;
};
[[nodiscard]] Copied CopiedBy(const NodeTokens& node, const TransferPlan& plan);
[[nodiscard]] Copied CopiedBy(std::span<const NodeTokens> nodes,
                              std::span<const TransferPlan> plans);

// Transfers of tokens that are there, each at most once, and of no more than the budget allows;
// names what is wrong.
[[nodiscard]] absl::Status Check(const NodeTokens& node, const TransferPlan& plan,
                                 const CopyBudget& budget);
// For ranks to compare.
[[nodiscard]] uint64_t Hash(const TransferPlan& plan);

}  // namespace rewire::moe
