// One micro-batch of one mixture-of-experts layer inside one node, after dispatch to a placement in
// which experts may have replicas. NodeTokens says which device has which tokens and which weights.
// Moves between the node's devices are planned from NodeTokens; Batch (reconfig/moe/plan/batch.h)
// is the case without replicas. Plans are pure integer functions, ties to the lowest number.
// Thread-safe functions; values are thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/moe/plan/batch.h"
#include "reconfig/moe/plan/lite_routing.h"
#include "reconfig/moe/plan/placement.h"

namespace rewire::moe {

struct NodeTokens {
  uint32_t devices = 0;
  uint32_t experts = 0;
  // Both are indexed by [expert * devices + device].
  std::vector<uint32_t> tokens;   // tokens on the device; the sum of all is below 2^32
  std::vector<uint8_t> replicas;  // 1: the device has the expert's weights
};
// Checks that tokens are only on devices with the weights. An error names the first invalid entry.
[[nodiscard]] absl::Status Check(const NodeTokens& node);

// Returns the tokens of one node; `routed` is LiteRouting's result for the placement. Fails if the
// node has too many tokens.
[[nodiscard]] absl::StatusOr<NodeTokens> TokensOfNode(const RoutedTokens& routed,
                                                      const Placement& placement,
                                                      const Topology& topology, uint32_t experts,
                                                      uint32_t node);

// `to` computes tokens [first, first + tokens) of the expert, counted in the order of `from`.
// `from` keeps the tokens that no transfer names.
struct Transfer {
  uint32_t expert = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t first = 0;
  uint32_t tokens = 0;
  friend bool operator==(const Transfer&, const Transfer&) = default;
};
// Copies are made in the order of the plan. The first transfer of an expert to a device without its
// weights also copies the weights.
using TransferPlan = std::vector<Transfer>;

// Limits on the copies inside nodes for one micro-batch.
struct CopyBudget {
  uint64_t bytes = UINT64_MAX;  // bytes of weights and tokens, all devices together
  uint64_t expert_bytes = 0;    // bytes of one expert's weights
  uint32_t token_bytes = 0;
  uint32_t slots = 8;  // moved experts that one device has room for
};

// Returns the tokens that each device computes.
[[nodiscard]] std::vector<uint64_t> Loads(const NodeTokens& node);
[[nodiscard]] std::vector<uint64_t> Loads(const NodeTokens& node, const TransferPlan& plan);
// The same for all nodes, with one plan per node.
[[nodiscard]] std::vector<uint64_t> Loads(std::span<const NodeTokens> nodes,
                                          std::span<const TransferPlan> plans);

// The experts and tokens that a plan copies; Bytes() saturates at 2^64 - 1.
struct Copied {
  uint32_t experts = 0;  // experts whose weights are copied
  uint64_t tokens = 0;
  [[nodiscard]] uint64_t Bytes(const CopyBudget& budget) const;
};
[[nodiscard]] Copied CopiedBy(const NodeTokens& node, const TransferPlan& plan);
[[nodiscard]] Copied CopiedBy(std::span<const NodeTokens> nodes,
                              std::span<const TransferPlan> plans);

// Checks that transfers move existing tokens at most once, within the budget; names the fault.
[[nodiscard]] absl::Status Check(const NodeTokens& node, const TransferPlan& plan,
                                 const CopyBudget& budget);
// Returns a hash with which ranks compare plans.
[[nodiscard]] uint64_t Hash(const TransferPlan& plan);

// The node as a batch for planners without replicas (FEPLB's greedy, LLEP's splitting,
// BalanceMoves): every replica becomes an expert of its own.
struct ReplicaBatch {
  Batch batch;
  std::vector<uint32_t> expert;  // the node's expert for each of the batch's experts
};
// On every device, the `dynamic` experts that had most tokens are dynamic; ties go to the lowest.
// history: tokens of each expert in earlier micro-batches.
[[nodiscard]] ReplicaBatch ReplicasAsExperts(const NodeTokens& node,
                                             std::span<const uint64_t> history, uint32_t dynamic);
// `plan` is a plan for the batch.
[[nodiscard]] TransferPlan ToTransfers(const ReplicaBatch& replicas, const MovePlan& plan);

}  // namespace rewire::moe
