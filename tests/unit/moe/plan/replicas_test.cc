#include "reconfig/moe/plan/replicas.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

namespace rewire::moe {
namespace {

using Replicas = std::vector<uint32_t>;

TEST(ReplicasTest, EvenWhereTheSlotsCanBeDivided) {
  EXPECT_EQ(EvenReplicas(12, 4), Replicas(4, 3));
  EXPECT_EQ(EvenReplicas(13, 4), std::nullopt);
}

TEST(ReplicasTest, OneInEveryNodeAndThenOneMoreInEveryNode) {
  const std::vector<uint64_t> load = {100, 10, 10};
  EXPECT_EQ(QueueReplicas(load, 12, 2), (Replicas{8, 2, 2}));
}

TEST(ReplicasTest, OneAtATimeUpToTheNumberOfNodes) {
  // 4 nodes, 7 slots for 3 experts: too few for an expert to have a replica in every node.
  const std::vector<uint64_t> load = {90, 20, 30};
  EXPECT_EQ(QueueReplicas(load, 7, 4), (Replicas{4, 1, 2}));
}

TEST(ReplicasTest, WhatIsLeftGoesToExpertsThatTakeOneAtATime) {
  // Expert 0 has a replica in every node, and two more do not fit.
  const std::vector<uint64_t> load = {90, 20, 30};
  EXPECT_EQ(QueueReplicas(load, 5, 2), (Replicas{2, 1, 2}));
}

TEST(ReplicasTest, TiesGoToTheLowestExpert) {
  EXPECT_EQ(QueueReplicas(std::vector<uint64_t>(4, 7), 6, 1), (Replicas{2, 2, 1, 1}));
  EXPECT_EQ(QueueReplicas(std::vector<uint64_t>(4, 0), 6, 1), (Replicas{3, 1, 1, 1}));
}

TEST(ReplicasTest, AnyLoadsGetAllSlotsButFewerThanThereAreNodes) {
  EXPECT_TRUE(rc::check([] {
    const auto experts = *rc::gen::inRange(1u, 20u);
    const auto nodes = *rc::gen::inRange(1u, 9u);
    const uint32_t slots = experts + *rc::gen::inRange(0u, 100u);
    std::vector<uint64_t> load(experts);
    for (uint64_t& l : load) l = *rc::gen::inRange<uint64_t>(0, 1000);
    const Replicas replicas = QueueReplicas(load, slots, nodes);
    const uint32_t used = std::accumulate(replicas.begin(), replicas.end(), 0u);
    RC_ASSERT(used <= slots);
    RC_ASSERT(used + nodes > slots);
    for (uint32_t r : replicas) RC_ASSERT(r > 0u);
  }));
}

}  // namespace
}  // namespace rewire::moe
