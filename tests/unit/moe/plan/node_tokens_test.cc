#include "reconfig/moe/plan/node_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

using ::testing::ElementsAre;

// Two experts on three devices: expert 0 on devices 0 and 1, expert 1 on device 2.
const NodeTokens kNode{3, 2, {50, 30, 0, 0, 0, 10}, {1, 1, 0, 0, 0, 1}};

std::string Wrong(const TransferPlan& plan, const CopyBudget& budget = {}) {
  return std::string(Check(kNode, plan, budget).message());
}

TEST(NodeTokensTest, ComputesLoadsAndBytesOfPlan) {
  ASSERT_TRUE(Check(kNode).ok());
  EXPECT_THAT(Loads(kNode), ElementsAre(50, 30, 10));
  // Device 2 gets the weights of expert 0 once.
  const TransferPlan plan = {{0, 0, 2, 40, 10}, {0, 1, 2, 20, 5}, {0, 0, 1, 39, 1}};
  const CopyBudget budget{1000 + 16 * 8, 1000, 8, 1};
  EXPECT_EQ(Check(kNode, plan, budget), absl::OkStatus());
  EXPECT_THAT(Loads(kNode, plan), ElementsAre(39, 26, 25));
  const Copied copied = CopiedBy(kNode, plan);
  EXPECT_EQ(copied.experts, 1U);
  EXPECT_EQ(copied.tokens, 16U);
  EXPECT_EQ(copied.Bytes(budget), budget.bytes);
  EXPECT_EQ(copied.Bytes({0, UINT64_MAX, 1, 8}), UINT64_MAX);
}

TEST(NodeTokensTest, RejectsInvalidNode) {
  EXPECT_EQ(Check(NodeTokens{}).message(), "node: devices=0: must be at least 1");
  NodeTokens n = kNode;
  n.replicas[1] = 0;
  EXPECT_EQ(Check(n).message(), "device 1 has tokens of expert 0, but not its weights");
  n = kNode;
  n.tokens[0] = n.tokens[1] = UINT32_MAX;
  EXPECT_EQ(Check(n).message(), "node: tokens=8589934600: must be at most 2^32 - 1");
  n.tokens.pop_back();
  EXPECT_EQ(Check(n).message(),
            "node: tokens=5 replicas=6: must each be 6 (pairs of expert and device)");
}

TEST(NodeTokensTest, RejectsInvalidPlan) {
  const std::string who = "expert 0 from device 0 to device 2: ";
  EXPECT_EQ(Wrong({{0, 0, 2, 0, 51}}), who + "tokens up to 51: must be at most 50");
  EXPECT_EQ(Wrong({{0, 0, 2, UINT32_MAX, 2}}), who + "tokens up to 4294967297: must be at most 50");
  EXPECT_EQ(Wrong({{0, 0, 2, 0, 0}}), who + "tokens=0: must be at least 1");
  EXPECT_EQ(Wrong({{0, 0, 1, 0, 20}, {0, 0, 2, 19, 20}}), who + "tokens are moved twice");
  EXPECT_EQ(Wrong({{0, 0, 1, 0, 20}, {0, 0, 2, 20, 20}}), "");
  EXPECT_EQ(Wrong({{0, 0, 0, 0, 1}}),
            "expert 0 from device 0 to device 0: the devices must differ");
  EXPECT_EQ(Wrong({{2, 0, 1, 0, 1}}),
            "expert 2 from device 0 to device 1: no such expert or device");
  EXPECT_EQ(Wrong({{0, 0, 3, 0, 1}}),
            "expert 0 from device 0 to device 3: no such expert or device");
  EXPECT_EQ(Wrong({{0, 0, 2, 0, 1}}, {UINT64_MAX, 1, 1, 0}),
            "plan: device 2: must receive at most 0 experts");
  EXPECT_EQ(Wrong({{0, 0, 2, 0, 1}}, {104, 100, 5, 8}), "plan: bytes=105: must be at most 104");
}

TEST(NodeTokensTest, TakesTheTokensOfTheNodesSlots) {
  Counts counts(4, 2);
  counts.at(0, 0) = 5;
  counts.at(2, 0) = 8;  // node 1 has two replicas of expert 0, on one device
  counts.at(3, 1) = 4;  // and no replica of expert 1
  const Topology topology{2, 2};
  const Placement placement{2, {0, kEmptySlot, 1, 1, kEmptySlot, kEmptySlot, 0, 0}};
  LiteRouting routing(topology, counts);
  const RoutedTokens& routed = routing.Route(placement);
  EXPECT_THAT(routed.of_slot, ElementsAre(5, 0, 2, 2, 0, 0, 4, 4));
  const auto first = TokensOfNode(routed, placement, topology, 2, 0);
  const auto second = TokensOfNode(routed, placement, topology, 2, 1);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(Check(*first), absl::OkStatus());
  EXPECT_THAT(first->tokens, ElementsAre(5, 0, 0, 4));
  EXPECT_THAT(first->replicas, ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(second->tokens, ElementsAre(0, 8, 0, 0));
  EXPECT_THAT(second->replicas, ElementsAre(0, 1, 0, 0));
  counts.at(0, 0) = UINT32_MAX;
  LiteRouting many(topology, counts);
  EXPECT_EQ(TokensOfNode(many.Route(placement), placement, topology, 2, 0).status().message(),
            "node 0: tokens=4294967299: must be at most 2^32 - 1");
}

TEST(NodeTokensTest, DifferentPlansHaveDifferentHashes) {
  const Transfer t{1, 2, 3, 4, 5};
  EXPECT_EQ(Hash(TransferPlan{t}), Hash(TransferPlan{t}));
  EXPECT_NE(Hash(TransferPlan{t}), Hash(TransferPlan{{1, 3, 2, 4, 5}}));
  EXPECT_NE(Hash(TransferPlan{t}), Hash(TransferPlan{{4, 2, 3, 1, 5}}));
  EXPECT_NE(Hash(TransferPlan{t}), Hash(TransferPlan{t, t}));
  EXPECT_NE(Hash(TransferPlan{}), Hash(TransferPlan{Transfer{}}));
}

TEST(ReplicaBatch, MakesReplicasExpertsAndTheBusiestDynamic) {
  // Expert 0 is on both devices, expert 1 on the first, expert 2 on the second.
  const NodeTokens node{2, 3, {5, 6, 7, 0, 0, 8}, {1, 1, 1, 0, 0, 1}};
  const std::vector<uint64_t> history = {10, 20, 10};
  const ReplicaBatch replicas = ReplicasAsExperts(node, history, 1);
  EXPECT_EQ(Check(replicas.batch), absl::OkStatus());
  EXPECT_THAT(replicas.expert, ElementsAre(0, 1, 0, 2));
  EXPECT_THAT(replicas.batch.tokens, ElementsAre(5, 7, 6, 8));
  EXPECT_THAT(replicas.batch.owner, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(replicas.batch.dynamic, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(ReplicasAsExperts(node, history, 4).batch.dynamic, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(ToTransfers(replicas, {{1, 1, 2, 3}}), ElementsAre(Transfer{1, 0, 1, 2, 3}));
}

}  // namespace
}  // namespace rewire::moe
