#include "reconfig/moe/plan/replica_balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/unit/moe/plan/any_node.h"
#include "tests/unit/moe/plan/loads.h"

namespace rewire::moe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TransferPlan PlanOf(const NodeTokens& node, const CopyBudget& budget) {
  return BalanceReplicas(std::span(&node, 1), budget)[0];
}

TEST(ReplicaBalance, KeepsTokensAndBudgetAndNeverRaisesTheBusiestLoad) {
  EXPECT_TRUE(rc::check([] {
    std::vector<NodeTokens> nodes;
    const auto count = *rc::gen::inRange(1, 4);
    for (int i = 0; i < count; ++i) nodes.push_back(AnyNode());
    const CopyBudget budget = AnyCopyBudget();
    const std::vector<TransferPlan> plans = BalanceReplicas(nodes, budget);
    RC_ASSERT(plans.size() == nodes.size());
    CopyBudget left = budget;
    for (size_t i = 0; i < nodes.size(); ++i) {
      RC_ASSERT(Check(nodes[i]) == absl::OkStatus());
      RC_ASSERT(Check(nodes[i], plans[i], left) == absl::OkStatus());
      left.bytes -= CopiedBy(nodes[i], plans[i]).Bytes(budget);
      const std::vector<uint64_t> before = Loads(nodes[i]);
      const std::vector<uint64_t> after = Loads(nodes[i], plans[i]);
      RC_ASSERT(Sum(after) == Sum(before));
      RC_ASSERT(Most(after) <= Most(before));
    }
    // Every rank computes the same plan, whatever it planned before.
    const std::vector<TransferPlan> again = BalanceReplicas(std::vector(nodes), budget);
    RC_ASSERT(again == plans);
  }));
}

TEST(ReplicaBalance, EvensLoadsWithAnUnlimitedBudget) {
  EXPECT_TRUE(rc::check([] {
    const NodeTokens node = AnyNode();
    const uint64_t after = Most(Loads(node, PlanOf(node, {UINT64_MAX, 1, 1, UINT32_MAX})));
    const uint64_t mean = (Sum(Loads(node)) + node.devices - 1) / node.devices;
    RC_ASSERT(after <= mean + std::max<uint64_t>(mean / 1024, 1));
  }));
}

// Returns the lowest maximum load that moving tokens between replicas can reach. By Hall's theorem
// it is the largest mean, over all sets of devices, of the tokens that only these devices can take.
uint64_t LowestWithoutCopies(const NodeTokens& node) {
  uint64_t lowest = 0;
  for (uint32_t set = 1; set < 1U << node.devices; ++set) {
    uint64_t confined = 0;
    for (uint32_t e = 0; e < node.experts; ++e) {
      uint32_t holders = 0;
      uint64_t tokens = 0;
      for (uint32_t d = 0; d < node.devices; ++d) {
        holders |= uint32_t{node.replicas[e * node.devices + d]} << d;
        tokens += node.tokens[e * node.devices + d];
      }
      confined += (holders & ~set) == 0 ? tokens : 0;
    }
    const auto devices = static_cast<uint32_t>(__builtin_popcount(set));
    lowest = std::max(lowest, (confined + devices - 1) / devices);
  }
  return lowest;
}

TEST(ReplicaBalance, EvensLoadsAsReplicasAllowWithoutCopies) {
  EXPECT_TRUE(rc::check([] {
    const NodeTokens node = AnyNode();
    const TransferPlan plan = PlanOf(node, {UINT64_MAX, 0, 0, 0});
    RC_ASSERT(CopiedBy(node, plan).experts == 0);
    const uint64_t after = Most(Loads(node, plan));
    const uint64_t lowest = LowestWithoutCopies(node);
    RC_ASSERT(after >= lowest);
    const uint64_t mean = (Sum(Loads(node)) + node.devices - 1) / node.devices;
    RC_ASSERT(after <= lowest + std::max<uint64_t>(mean / 1024, 1));
  }));
}

TEST(ReplicaBalance, PassesTokensToAReplicaThroughOtherDevices) {
  // Expert 0 is on devices 0 and 1, expert 1 on devices 1 and 2.
  const NodeTokens node{3, 2, {90, 0, 0, 0, 60, 0}, {1, 1, 0, 0, 1, 1}};
  const TransferPlan plan = PlanOf(node, {UINT64_MAX, 1, 1, 8});
  EXPECT_THAT(plan, ElementsAre(Transfer{0, 0, 1, 50, 40}, Transfer{1, 1, 2, 10, 50}));
  EXPECT_THAT(Loads(node, plan), ElementsAre(50, 50, 50));
}

TEST(ReplicaBalance, CopiesWeightsToDevicesWithoutReplica) {
  const NodeTokens node{2, 2, {30, 0, 70, 0}, {1, 0, 1, 0}};
  // The plan moves the smallest expert that is large enough, and only the needed number of its
  // tokens.
  EXPECT_THAT(PlanOf(node, {UINT64_MAX, 1, 1, 8}), ElementsAre(Transfer{1, 0, 1, 20, 50}));
  EXPECT_THAT(PlanOf(node, {UINT64_MAX, 1, 1, 0}), IsEmpty());
  // 100 bytes are the weights and ten tokens.
  EXPECT_THAT(PlanOf(node, {110, 100, 1, 8}), ElementsAre(Transfer{0, 0, 1, 20, 10}));
  EXPECT_THAT(PlanOf(node, {100, 100, 1, 8}), IsEmpty());
}

TEST(ReplicaBalance, SpendsBytesInTheBusiestNodes) {
  const NodeTokens even{2, 2, {50, 0, 0, 54}, {1, 0, 0, 1}};
  const NodeTokens uneven{2, 1, {104, 0}, {1, 0}};
  const std::vector<NodeTokens> nodes = {even, uneven};
  const auto plans = BalanceReplicas(nodes, {60, 10, 1, 8});
  EXPECT_THAT(plans[0], IsEmpty());
  EXPECT_THAT(plans[1], ElementsAre(Transfer{0, 0, 1, 54, 50}));
}

}  // namespace
}  // namespace rewire::moe
