#include "bench/moe/relayout_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

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
  std::set<std::pair<uint32_t, uint32_t>> rows;
  for (const RelayoutTime& t : *times) {
    rows.emplace(t.devices, t.capacity);
    EXPECT_GT(t.laer_seconds, 0);
    EXPECT_GT(t.our_seconds, 0);
    EXPECT_GT(t.our_seconds_one_iteration, 0);
  }
  EXPECT_EQ(rows.size(), 25u);
}

// On the iterations for which it is chosen, our placement costs no more than LAER's. On the next
// iteration nothing promises this. If our costs are never higher there, for any input, they were
// measured in sample.
TEST(RelayoutPartTest, OutOfSampleCostsAreOfTheIterationAfter) {
  const auto costs = CompareRelayoutsOutOfSample(50, 1);
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->placed_by.size(), 50u);
  ASSERT_EQ(costs->next.size(), 50u);
  EXPECT_LE(costs->placed_by.back(), 1.0);
  EXPECT_GT(costs->next.back(), 1.0);
  EXPECT_LT(costs->placed_by[25], costs->next[25]);
  const auto dearer = std::upper_bound(costs->next.begin(), costs->next.end(), 1.0);
  EXPECT_DOUBLE_EQ(costs->no_dearer, static_cast<double>(dearer - costs->next.begin()) / 50);
}

}  // namespace
}  // namespace rewire::bench
