#include "reconfig/moe/plan/relayout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace rewire::moe {
namespace {

using ::testing::HasSubstr;

struct Case {
  Counts counts;
  RelayoutOptions options;
};

// Returns a case with any number of nodes and devices. Experts are used everywhere, in some places,
// or nowhere.
Case RandomCase() {
  Case c;
  c.options.topology = {*rc::gen::inRange(1u, 6u), *rc::gen::inRange(1u, 9u)};
  c.options.capacity = *rc::gen::inRange(1u, 6u);
  c.options.objective = *rc::gen::element(Objective::kSum, Objective::kBusiestLink);
  const uint32_t devices = c.options.topology.devices();
  const auto experts = *rc::gen::inRange(1u, std::min(40u, devices * c.options.capacity) + 1);
  c.counts = Counts(devices, experts);
  const auto skew = *rc::gen::inRange(0u, 3u);
  for (uint32_t e = 0; e < experts; ++e) {
    const auto popular = *rc::gen::inRange(0u, 1000u);
    for (uint32_t d = 0; d < devices; ++d) {
      c.counts.at(d, e) = skew == 0   ? *rc::gen::inRange(0u, 1000u)
                          : skew == 1 ? popular + *rc::gen::inRange(0u, 10u)
                                      : popular * *rc::gen::inRange(0u, 2u);
    }
  }
  return c;
}

absl::StatusOr<Relayout> PlanOfOne(const Counts& counts, const RelayoutOptions& options) {
  return PlanRelayout(std::span(&counts, 1), options);
}

uint64_t CostOf(const Placement& placement, const Counts& counts, const RelayoutOptions& options) {
  LiteRouting routing(options.topology, counts);
  return LayoutCost(routing.Route(placement), options.rates, options.objective);
}

TEST(RelayoutTest, NeverCostsMoreThanLaer) {
  EXPECT_TRUE(rc::check([] {
    const Case c = RandomCase();
    const auto laers = PlanAsLaer(c.counts, c.options);
    const auto ours = PlanOfOne(c.counts, c.options);
    RC_ASSERT(laers.ok());
    RC_ASSERT(ours.ok());
    RC_ASSERT(ours->cost_ps <= laers->cost_ps);
    for (const Relayout& plan : {*laers, *ours}) {
      RC_ASSERT(Check(plan.placement, c.options.topology, c.counts.experts()).ok());
      RC_ASSERT(plan.cost_ps == CostOf(plan.placement, c.counts, c.options));
    }
    RC_ASSERT(PlanOfOne(c.counts, c.options)->placement == ours->placement);
  }));
}

TEST(RelayoutTest, RoutesEachIterationByItself) {
  EXPECT_TRUE(rc::check([] {
    const Case c = RandomCase();
    std::vector<Counts> iterations(3, c.counts);
    Counts sum(c.counts.devices(), c.counts.experts());
    for (Counts& i : iterations) {
      for (uint32_t& t : i.tokens()) t = t * *rc::gen::inRange(50u, 150u) / 100;
      sum.Add(i);
    }
    const auto laers = PlanAsLaer(sum, c.options);
    const auto ours = PlanRelayout(iterations, c.options);
    RC_ASSERT(laers.ok());
    RC_ASSERT(ours.ok());
    uint64_t laers_cost = 0, our_cost = 0;
    for (const Counts& i : iterations) {
      laers_cost += CostOf(laers->placement, i, c.options);
      our_cost += CostOf(ours->placement, i, c.options);
    }
    RC_ASSERT(ours->cost_ps == our_cost);
    RC_ASSERT(our_cost <= laers_cost);
  }));
}

TEST(RelayoutTest, PlacesExpertsNearTheirTokens) {
  // Four experts on four devices: LAER's plan spreads equal loads by their number alone.
  Case c;
  c.options.topology = {2, 2};
  c.options.capacity = 1;
  c.counts = Counts(4, 4);
  for (uint32_t e = 0; e < 4; ++e) c.counts.at(3 - e, e) = 100;
  const auto ours = PlanOfOne(c.counts, c.options);
  ASSERT_TRUE(ours.ok());
  EXPECT_EQ(ours->placement.slots, (std::vector<uint32_t>{3, 2, 1, 0}));
  EXPECT_EQ(ours->cost_ps, 4u * 100 * c.options.rates.compute_ps);
}

TEST(RelayoutTest, BusiestLinkDiffersFromSum) {
  RoutedTokens routed;
  routed.computed = {5, 7};
  routed.leaving = {3, 0};
  routed.arriving = {0, 2};
  routed.inside = 10;
  routed.between = 3;
  LayoutRates rates{100, 10, 20, true};
  EXPECT_EQ(LayoutCost(routed, rates, Objective::kSum), 4u * (10 * 10 + 3 * 20) + 4 * 7 * 100);
  EXPECT_EQ(LayoutCost(routed, rates, Objective::kBusiestLink), 4u * 3 * 20 + 4 * 7 * 100 / 2);
  rates.recompute = false;
  EXPECT_EQ(LayoutCost(routed, rates, Objective::kSum), 4u * (10 * 10 + 3 * 20) + 3 * 7 * 100);
}

TEST(RelayoutTest, RejectsInvalidInput) {
  RelayoutOptions options;
  options.topology = {1, 2};
  options.capacity = 2;
  EXPECT_THAT(PlanOfOne(Counts(3, 4), options).status().ToString(),
              HasSubstr("devices=3 experts=4: must be 2 devices"));
  EXPECT_THAT(PlanOfOne(Counts(2, 5), options).status().ToString(),
              HasSubstr("slots=4: must be at least 5"));
  EXPECT_THAT(PlanAsLaer(Counts(2, 0), options).status().ToString(), HasSubstr("experts=0"));
  options.rates.compute_ps = UINT32_MAX;
  Counts many(2, 2);
  many.at(0, 0) = UINT32_MAX;
  EXPECT_THAT(PlanAsLaer(many, options).status().ToString(), HasSubstr("at most 536870912"));
}

}  // namespace
}  // namespace rewire::moe
