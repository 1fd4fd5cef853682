#include "reconfig/moe/plan/dynamic_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DynamicExpertsTest, ChoosesThoseWithMostTokensAndTiesToTheLowestNumber) {
  const std::vector<uint32_t> tokens = {5, 90, 9, 7, 9};
  EXPECT_THAT(ChooseDynamic(tokens, 1), ElementsAre(0, 1, 0, 0, 0));
  EXPECT_THAT(ChooseDynamic(tokens, 2), ElementsAre(0, 1, 1, 0, 0));
  EXPECT_THAT(ChooseDynamic(tokens, 4), ElementsAre(0, 1, 1, 1, 1));
}

TEST(DynamicExpertsTest, ChoosesMoreUntilTheyHoldHalfOfTheTokens) {
  const std::vector<uint32_t> tokens = {3, 5, 4, 5, 3};
  EXPECT_THAT(ChooseDynamic(tokens, 1), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(ChooseDynamic(tokens, 3), ElementsAre(0, 1, 1, 1, 0));
}

TEST(DynamicExpertsTest, ChoosesAllWhereThereAreNoMore) {
  const std::vector<uint32_t> tokens = {0, 3};
  EXPECT_THAT(ChooseDynamic(tokens, 4), ElementsAre(1, 1));
  EXPECT_THAT(ChooseDynamic({}, 4), IsEmpty());
}

}  // namespace
}  // namespace rewire::moe
