#include "reconfig/transition/restore_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const World kFour{3, {{0, 1, ""}, {1, 1, ""}, {2, 1, ""}, {3, 1, ""}}};

AtBoundary At(uint64_t live, bool whole, std::vector<uint64_t> own, std::vector<uint64_t> buddy) {
  return {4, live, whole, std::move(own), std::move(buddy)};
}

TEST(RestoreChoiceTest, TheHighestVersionThatEveryShardHas) {
  // Member 1 is lost; member 2 has its shard at 9 only, so everyone goes back to 9.
  const auto choice = ChooseVersion(kFour, {{0, At(10, true, {9, 10}, {9, 10})},
                                            {2, At(10, true, {9, 10}, {9})},
                                            {3, At(9, true, {9}, {9, 10})}});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->version, 9u);
  EXPECT_THAT(choice->live, ElementsAre(3));
}

TEST(RestoreChoiceTest, AMixedStateInPlaceDoesNotCount) {
  const auto choice = ChooseVersion(
      kFour,
      {{0, At(10, false, {9}, {9})}, {1, At(10, false, {9}, {9})}, {2, At(10, false, {9}, {9})}});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->version, 9u);
  EXPECT_TRUE(choice->live.empty());
}

TEST(RestoreChoiceTest, SlotZeroIsInTheLastSlotsCare) {
  // The last slot's buddy is slot 0; slot 0's is slot 1.
  EXPECT_TRUE(
      ChooseVersion(
          kFour, {{1, At(5, true, {5}, {5})}, {2, At(5, true, {5}, {})}, {3, At(5, true, {5}, {})}})
          .ok());
  EXPECT_TRUE(
      ChooseVersion(
          kFour, {{0, At(5, true, {5}, {5})}, {1, At(5, true, {5}, {})}, {2, At(5, true, {5}, {})}})
          .ok());
}

TEST(RestoreChoiceTest, TwoNeighboursLostNamesTheShard) {
  const auto choice =
      ChooseVersion(kFour, {{0, At(5, true, {5}, {5})}, {3, At(5, true, {5}, {5})}});
  EXPECT_THAT(std::string(choice.status().message()), HasSubstr("slot 1 (member 1)"));
}

TEST(RestoreChoiceTest, NoVersionInCommon) {
  const auto choice = ChooseVersion(kFour, {{0, At(5, true, {}, {3})},
                                            {1, At(4, true, {}, {})},
                                            {2, At(5, true, {}, {})},
                                            {3, At(5, true, {}, {})}});
  EXPECT_THAT(std::string(choice.status().message()), HasSubstr("no version in common"));
}

TEST(RestoreChoiceTest, AloneAMemberIsNotItsOwnBuddy) {
  const World one{3, {{0, 1, ""}}};
  EXPECT_FALSE(ChooseVersion(one, {{0, At(5, false, {}, {4})}}).ok());
  EXPECT_EQ(ChooseVersion(one, {{0, At(5, false, {4}, {})}})->version, 4u);
}

}  // namespace
}  // namespace rewire
