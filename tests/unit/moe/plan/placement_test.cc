#include "reconfig/moe/plan/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace rewire::moe {
namespace {

using testing::HasSubstr;

using Slots = std::vector<uint32_t>;

// Places one replica after the other, as in LAER's description. Loads are fractions of a token;
// here they are scaled so that every share is an integer.
Placement PlaceOneByOne(const Topology& topology, uint32_t capacity,
                        const std::vector<uint64_t>& load, const std::vector<uint32_t>& replicas) {
  const uint32_t devices = topology.devices();
  std::vector<std::pair<uint64_t, uint32_t>> order;
  for (uint32_t e = 0; e < load.size(); ++e) {
    for (uint32_t r = 0; r < replicas[e]; ++r) order.push_back({load[e] / replicas[e], e});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Slots> placed(devices);
  std::vector<uint64_t> loads(devices);
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> copies;  // key: expert and node
  for (const auto& replica : order) {
    const uint32_t expert = replica.second;
    uint32_t fewest = UINT32_MAX;
    for (uint32_t n = 0; n < topology.nodes; ++n) fewest = std::min(fewest, copies[{expert, n}]);
    const auto best = [&](bool anywhere) {
      uint32_t found = devices;
      for (uint32_t d = 0; d < devices; ++d) {
        if (placed[d].size() == capacity) continue;
        if (!anywhere && copies[{expert, d / topology.per_node}] != fewest) continue;
        if (found == devices || loads[d] < loads[found]) found = d;
      }
      return found;
    };
    uint32_t device = best(false);
    if (device == devices) device = best(true);
    placed[device].push_back(expert);
    loads[device] += replica.first;
    ++copies[{expert, device / topology.per_node}];
  }
  Placement placement{capacity, {}};
  for (Slots& slots : placed) {
    std::sort(slots.begin(), slots.end());
    slots.resize(capacity, kEmptySlot);
    placement.slots.insert(placement.slots.end(), slots.begin(), slots.end());
  }
  return placement;
}

TEST(PlacementTest, EqualsPlacingReplicasOneByOne) {
  EXPECT_TRUE(rc::check([] {
    const Topology topology{*rc::gen::inRange(1u, 5u), *rc::gen::inRange(1u, 5u)};
    const auto capacity = *rc::gen::inRange(1u, 4u);
    const uint32_t slots = topology.devices() * capacity;
    const auto experts = *rc::gen::inRange(1u, slots + 1);
    // Replica counts are either those of LAER's planner or arbitrary.
    std::vector<uint64_t> load(experts);
    for (uint64_t& l : load) l = *rc::gen::inRange<uint64_t>(0, 100);
    std::vector<uint32_t> replicas = QueueReplicas(load, slots, topology.nodes);
    if (*rc::gen::arbitrary<bool>()) {
      replicas.assign(experts, 1);
      for (uint32_t s = experts; s < slots; ++s) ++replicas[*rc::gen::inRange(0u, experts)];
    }
    for (uint32_t e = 0; e < experts; ++e) load[e] *= replicas[e];
    const Placement placement = PlaceGreedily(topology, capacity, load, replicas);
    RC_ASSERT(placement == PlaceOneByOne(topology, capacity, load, replicas));
    RC_ASSERT(Check(placement, topology, experts).ok());
  }));
}

TEST(PlacementTest, ReplicasGoToDifferentNodesFirst) {
  const std::vector<uint64_t> load = {10, 10};
  const std::vector<uint32_t> replicas = {2, 2};
  EXPECT_EQ(PlaceGreedily({2, 2}, 1, load, replicas).slots, (Slots{0, 1, 0, 1}));
}

TEST(PlacementTest, TakesAnyDeviceIfNodesWithFewestReplicasAreFull) {
  // Experts 0 and 1 fill the only devices of nodes 0 and 1; expert 2 has three replicas for the
  // rest.
  const std::vector<uint64_t> load = {90, 80, 30};
  const std::vector<uint32_t> replicas = {1, 1, 2};
  const Placement placement = PlaceGreedily({2, 1}, 2, load, replicas);
  EXPECT_EQ(placement.slots, (Slots{0, 2, 1, 2}));
  const std::vector<uint32_t> more = {2, 1, 1};
  EXPECT_EQ(PlaceGreedily({2, 1}, 2, load, more).slots, (Slots{0, 1, 0, 2}));
}

TEST(PlacementTest, RejectsInvalidPlacement) {
  const Topology topology{1, 2};
  EXPECT_TRUE(Check({1, {1, 0}}, topology, 2).ok());
  EXPECT_THAT(Check({1, {1}}, topology, 2).ToString(), HasSubstr("slots=1: must be 2"));
  EXPECT_THAT(Check({1, {1, 2}}, topology, 2).ToString(),
              HasSubstr("expert=2: must be below experts=2"));
  EXPECT_THAT(Check({1, {1, kEmptySlot}}, topology, 2).ToString(),
              HasSubstr("expert 0 is on no device"));
}

TEST(PlacementTest, DifferentPlacementsHaveDifferentHashes) {
  EXPECT_EQ(Hash(Placement{1, {0, 1}}), Hash(Placement{1, {0, 1}}));
  EXPECT_NE(Hash(Placement{1, {0, 1}}), Hash(Placement{1, {1, 0}}));
  EXPECT_NE(Hash(Placement{1, {0, 1}}), Hash(Placement{2, {0, 1}}));
}

using Replicas = std::vector<uint32_t>;

TEST(ReplicasTest, DividesSlotsEvenlyIfTheyDivide) {
  EXPECT_EQ(EvenReplicas(12, 4), Replicas(4, 3));
  EXPECT_EQ(EvenReplicas(13, 4), std::nullopt);
}

TEST(ReplicasTest, AddsOneReplicaInEveryNodeAtATime) {
  const std::vector<uint64_t> load = {100, 10, 10};
  EXPECT_EQ(QueueReplicas(load, 12, 2), (Replicas{8, 2, 2}));
}

TEST(ReplicasTest, AddsSingleReplicasUpToTheNumberOfNodes) {
  // 4 nodes, 7 slots for 3 experts: too few for an expert to have a replica in every node.
  const std::vector<uint64_t> load = {90, 20, 30};
  EXPECT_EQ(QueueReplicas(load, 7, 4), (Replicas{4, 1, 2}));
}

TEST(ReplicasTest, GivesRemainingSlotsToExpertsThatTakeSingleReplicas) {
  // Expert 0 has a replica in every node, and two more do not fit.
  const std::vector<uint64_t> load = {90, 20, 30};
  EXPECT_EQ(QueueReplicas(load, 5, 2), (Replicas{2, 1, 2}));
}

TEST(ReplicasTest, TiesGoToTheLowestExpert) {
  EXPECT_EQ(QueueReplicas(std::vector<uint64_t>(4, 7), 6, 1), (Replicas{2, 2, 1, 1}));
  EXPECT_EQ(QueueReplicas(std::vector<uint64_t>(4, 0), 6, 1), (Replicas{3, 1, 1, 1}));
}

TEST(ReplicasTest, LeavesFewerSlotsEmptyThanThereAreNodes) {
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
