#include "reconfig/moe/plan/lite_routing.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace rewire::moe {
namespace {

struct Case {
  Topology topology;
  Counts counts;
  Placement placement;
};

// Returns a case with any number of nodes and devices, some empty slots, and experts in some nodes
// only.
Case RandomCase() {
  Case c;
  c.topology = {*rc::gen::inRange(1u, 5u), *rc::gen::inRange(1u, 6u)};
  const auto capacity = *rc::gen::inRange(1u, 5u);
  const uint32_t slots = c.topology.devices() * capacity;
  const auto experts = *rc::gen::inRange(1u, slots + 1);
  c.counts = Counts(c.topology.devices(), experts);
  for (uint32_t& t : c.counts.tokens()) t = *rc::gen::inRange(0u, 50u);
  c.placement.capacity = capacity;
  c.placement.slots.assign(slots, kEmptySlot);
  for (uint32_t s = 0; s < slots; ++s) {
    if (s < experts) {
      c.placement.slots[s] = s;
    } else if (*rc::gen::inRange(0, 8) > 0) {
      c.placement.slots[s] = *rc::gen::inRange(0u, experts);
    }
  }
  for (uint32_t s = 0; s < slots; ++s) {
    std::swap(c.placement.slots[s], c.placement.slots[*rc::gen::inRange(0u, slots)]);
  }
  return c;
}

// Routes every source, expert and slot separately.
RoutedTokens RouteOneByOne(const Case& c) {
  const uint32_t devices = c.topology.devices();
  RoutedTokens routed;
  routed.computed.resize(devices);
  routed.of_slot.resize(c.placement.slots.size());
  routed.leaving.resize(devices);
  routed.arriving.resize(devices);
  for (uint32_t source = 0; source < devices; ++source) {
    for (uint32_t e = 0; e < c.counts.experts(); ++e) {
      std::vector<uint32_t> near, all;  // slots of the replicas
      for (uint32_t s = 0; s < c.placement.slots.size(); ++s) {
        const uint32_t d = s / c.placement.capacity;
        if (c.placement.slots[s] != e) continue;
        all.push_back(s);
        if (d / c.topology.per_node == source / c.topology.per_node) near.push_back(s);
      }
      const std::vector<uint32_t>& targets = near.empty() ? all : near;
      for (uint32_t token = 0; token < c.counts.at(source, e); ++token) {
        const uint32_t slot = targets[token % targets.size()];
        const uint32_t target = slot / c.placement.capacity;
        ++routed.of_slot[slot];
        ++routed.computed[target];
        if (target == source) {
          ++routed.own;
        } else if (!near.empty()) {
          ++routed.inside;
        } else {
          ++routed.between;
          ++routed.leaving[source];
          ++routed.arriving[target];
        }
      }
    }
  }
  return routed;
}

TEST(LiteRoutingTest, EqualsRoutingEachTokenByItself) {
  EXPECT_TRUE(rc::check([] {
    const Case c = RandomCase();
    LiteRouting routing(c.topology, c.counts);
    RC_ASSERT(routing.Route(c.placement) == RouteOneByOne(c));
    // State that the routing keeps between calls does not change a result.
    Case other = c;
    std::reverse(other.placement.slots.begin(), other.placement.slots.end());
    RC_ASSERT(routing.Route(other.placement) == RouteOneByOne(other));
    RC_ASSERT(routing.Route(c.placement) == RouteOneByOne(c));
  }));
}

TEST(LiteRoutingTest, NoTokenIsLostOrDoubled) {
  EXPECT_TRUE(rc::check([] {
    const Case c = RandomCase();
    LiteRouting routing(c.topology, c.counts);
    const RoutedTokens& routed = routing.Route(c.placement);
    uint64_t tokens = 0, computed = 0;
    for (const uint32_t t : c.counts.tokens()) tokens += t;
    for (const uint64_t t : routed.computed) computed += t;
    RC_ASSERT(computed == tokens);
    RC_ASSERT(routed.own + routed.inside + routed.between == tokens);
  }));
}

TEST(LiteRoutingTest, GivesTheRemainderToTheFirstReplicas) {
  Counts counts(4, 1);
  counts.at(0, 0) = 5;  // node 0 has two replicas
  counts.at(3, 0) = 7;  // node 1 has one
  const Placement placement{1, {0, 0, kEmptySlot, 0}};
  LiteRouting routing({2, 2}, counts);
  const RoutedTokens& routed = routing.Route(placement);
  EXPECT_EQ(routed.computed, (std::vector<uint64_t>{3, 2, 0, 7}));
  EXPECT_EQ(routed.own, 3u + 7u);
  EXPECT_EQ(routed.inside, 2u);
  EXPECT_EQ(routed.between, 0u);
}

TEST(LiteRoutingTest, DividesTokensAmongAllReplicasIfTheNodeHasNone) {
  Counts counts(6, 1);
  counts.at(5, 0) = 8;  // node 2 has none
  const Placement placement{1, {0, kEmptySlot, 0, 0, kEmptySlot, kEmptySlot}};
  LiteRouting routing({3, 2}, counts);
  const RoutedTokens& routed = routing.Route(placement);
  EXPECT_EQ(routed.computed, (std::vector<uint64_t>{3, 0, 3, 2, 0, 0}));
  EXPECT_EQ(routed.arriving, routed.computed);
  EXPECT_EQ(routed.leaving, (std::vector<uint64_t>{0, 0, 0, 0, 0, 8}));
  EXPECT_EQ(routed.between, 8u);
}

}  // namespace
}  // namespace rewire::moe
