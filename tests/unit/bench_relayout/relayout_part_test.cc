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
  const auto share = CompareObjectives(200, 1);
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_GE(*share, 0.9);
}

TEST(RelayoutPartTest, LayersAreAsUnevenAsLaersAuthorsMeasured) {
  const auto e8k2 = MeasureEvenness(CalibratedE8K2(), 2, 32, 3);
  ASSERT_TRUE(e8k2.ok()) << e8k2.status();
  EXPECT_NEAR(e8k2->fixed.max_over_mean, 1.664, 0.1);
  EXPECT_NEAR(e8k2->laer.max_over_mean, 1.413, 0.1);
  EXPECT_LT(e8k2->ours.max_over_mean, e8k2->laer.max_over_mean + 0.01);
  const auto e16k4 = MeasureEvenness(CalibratedE16K4(), 4, 24, 3);
  ASSERT_TRUE(e16k4.ok()) << e16k4.status();
  EXPECT_NEAR(e16k4->fixed.max_over_mean, 1.729, 0.1);
  EXPECT_NEAR(e16k4->laer.max_over_mean, 1.288, 0.1);
  EXPECT_LT(e16k4->ours.max_over_mean, e16k4->laer.max_over_mean + 0.01);
}

TEST(RelayoutPartTest, EveryRowOfThePublishedTimesIsMeasured) {
  const auto times = TimeRelayouts(REWIRE_MOE_DATA "/planner_seconds.csv", 1);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->size(), 25u);
  for (const RelayoutTime& t : *times) {
    EXPECT_GT(t.our_seconds, 0);
    EXPECT_LE(t.cost_ratio, 1.0);
  }
}

}  // namespace
}  // namespace rewire::bench
