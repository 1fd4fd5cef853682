#include "bench/moe/relayout_part.h"

#include <gtest/gtest.h>

namespace rewire::bench {
namespace {

TEST(RelayoutPartTest, OursIsNeverDearerOnInputsOfAnyShape) {
  const auto ratios = CompareRelayoutCosts(200, 1);
  ASSERT_TRUE(ratios.ok()) << ratios.status();
  ASSERT_EQ(ratios->size(), 200u);
  EXPECT_LE(ratios->back(), 1.0);
  EXPECT_LT((*ratios)[100], 1.0);
}

TEST(RelayoutPartTest, PlacementsForTheBusiestLinkMostlyHaveNoBusierLink) {
  const auto compared = CompareObjectives(400, 1);
  ASSERT_TRUE(compared.ok()) << compared.status();
  EXPECT_GE(compared->no_busier, 0.95);
  EXPECT_LE(compared->computed, 1.0);
}

TEST(RelayoutPartTest, EveryRowOfThePublishedTimesIsMeasured) {
  const auto times = TimeRelayouts(REWIRE_MOE_DATA "/planner_seconds.csv", 1);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->size(), 25u);
  for (const RelayoutTime& t : *times) {
    EXPECT_GT(t.our_seconds, 0);
    EXPECT_GT(t.our_seconds_one_iteration, 0);
  }
}

TEST(RelayoutPartTest, OutOfSampleCostsAreOfTheSameInputs) {
  const auto costs = CompareRelayoutsOutOfSample(50, 1);
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->placed_by.size(), 50u);
  ASSERT_EQ(costs->next.size(), 50u);
  EXPECT_LE(costs->placed_by.back(), 1.0);
  EXPECT_GE(costs->no_dearer, 0.0);
  EXPECT_LE(costs->no_dearer, 1.0);
}

}  // namespace
}  // namespace rewire::bench
