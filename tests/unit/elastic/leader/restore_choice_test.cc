// The version that the survivors of a loss can restore.
#include "reconfig/elastic/leader/restore_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const World kFour{3, {{0, 1, ""}, {1, 1, ""}, {2, 1, ""}, {3, 1, ""}}};
const std::vector<uint32_t> kAll{0, 1, 2, 3};
const StateNeed kVolatile{kAll, kAll, {}};
// ZeRO-1: weights on every slot, moments once, and a volatile cursor.
const StateNeeds kSharded{
    {{0}, {}, {0}}, {{1}, {}, {1}}, {{2}, {}, {2}}, {{3}, {}, {3}}, {kAll, {}, kAll}};
const StateNeeds kShardedVolatile{{{0}, {}, {0}}, {{1}, {}, {1}}, {{2}, {}, {2}},
                                  {{3}, {}, {3}}, kVolatile,      {kAll, {}, kAll}};
// ZeRO-0: everything is on every slot.
const StateNeeds kReplicated{{kAll, {}, {}}};
const StateNeeds kReplicatedVolatile{kVolatile, {kAll, {}, {}}};

using Reports = std::map<MemberId, AtBoundary>;

AtBoundary At(uint64_t live, bool whole, std::vector<uint64_t> own, std::vector<uint64_t> buddy,
              const StateNeeds& needs = kSharded) {
  return {4, live, whole, std::move(own), std::move(buddy), needs};
}

std::string WhyNot(const World& world, const Reports& reports) {
  const auto choice = ChooseVersion(world, reports);
  EXPECT_FALSE(choice.ok());
  return std::string(choice.status().message());
}

// ---- state that exists once ---------------------------------------------------------------------

TEST(RestoreChoiceTest, ChoosesHighestVersionOfEveryShard) {
  // Member 1 is lost; member 2 has its shard only at 9, so every member returns to 9.
  const auto choice = ChooseVersion(kFour, {{0, At(10, true, {9, 10}, {9, 10})},
                                            {2, At(10, true, {9, 10}, {9})},
                                            {3, At(9, true, {9}, {9, 10})}});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->version, 9u);
  EXPECT_THAT(choice->sources.live, ElementsAre(3));
  EXPECT_THAT(choice->sources.own, ElementsAre(0, 2, 3));
  EXPECT_THAT(choice->sources.buddy, ElementsAre(0, 2, 3));
}

TEST(RestoreChoiceTest, IgnoresStateOfInterruptedUpdate) {
  const auto choice = ChooseVersion(
      kFour,
      {{0, At(10, false, {9}, {9})}, {1, At(10, false, {9}, {9})}, {2, At(10, false, {9}, {9})}});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->version, 9u);
  EXPECT_TRUE(choice->sources.live.empty());
}

TEST(RestoreChoiceTest, LastSlotKeepsCopyOfSlotZero) {
  // The last slot's buddy is slot 0; slot 0's buddy is slot 1.
  EXPECT_TRUE(
      ChooseVersion(
          kFour, {{1, At(5, true, {5}, {5})}, {2, At(5, true, {5}, {})}, {3, At(5, true, {5}, {})}})
          .ok());
  EXPECT_TRUE(
      ChooseVersion(
          kFour, {{0, At(5, true, {5}, {5})}, {1, At(5, true, {5}, {})}, {2, At(5, true, {5}, {})}})
          .ok());
}

TEST(RestoreChoiceTest, NamesShardWhenTwoNeighboursAreLost) {
  const std::string why = WhyNot(kFour, {{0, At(5, true, {5}, {5})}, {3, At(5, true, {5}, {5})}});
  EXPECT_THAT(why, HasSubstr("slot 1 (member 1)"));
  EXPECT_THAT(why, HasSubstr("slot 2 (member 2) with its copies is lost too"));
}

TEST(RestoreChoiceTest, SurvivesLossOfTwoThatAreNotNeighbours) {
  const auto choice =
      ChooseVersion(kFour, {{0, At(5, true, {4, 5}, {4, 5})}, {2, At(5, true, {4, 5}, {4, 5})}});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->version, 5u);
}

TEST(RestoreChoiceTest, NamesSlotWithoutCopy) {
  const std::string why =
      WhyNot(kFour, {{0, At(5, true, {}, {})}, {2, At(5, true, {}, {})}, {3, At(5, true, {}, {})}});
  EXPECT_THAT(why, HasSubstr("the state of slot 1 (member 1) no longer exists on any member"));
  EXPECT_THAT(why, HasSubstr("slot 2 (member 2) has no complete copy"));
}

TEST(RestoreChoiceTest, ReportsWhatEachVersionLacks) {
  const std::string why = WhyNot(kFour, {{0, At(5, true, {}, {3})},
                                         {1, At(4, true, {}, {})},
                                         {2, At(5, true, {}, {})},
                                         {3, At(5, true, {}, {})}});
  EXPECT_THAT(why, HasSubstr("version 5 lacks slot 1 (member 1)"));
  EXPECT_THAT(why, HasSubstr("version 4 lacks slot 0 (member 0)"));
}

TEST(RestoreChoiceTest, SingleMemberKeepsNoCopyOfItself) {
  const World one{3, {{0, 1, ""}}};
  const StateNeeds layout{{{0}, {}, {0}}};
  EXPECT_FALSE(ChooseVersion(one, {{0, At(5, false, {}, {4}, layout)}}).ok());
  EXPECT_EQ(ChooseVersion(one, {{0, At(5, false, {4}, {}, layout)}})->version, 4u);
}

TEST(RestoreChoiceTest, SlotWithoutElementsNeedsNoCopy) {
  // Three elements on four slots: slot 3 has none, and its member and slot 0 are lost.
  const StateNeeds layout{{{0}, {}, {0}}, {{1}, {}, {1}}, {{2}, {}, {2}}};
  const Reports reports = {{1, At(5, true, {5}, {5}, layout)}, {2, At(5, true, {5}, {5}, layout)}};
  const auto choice = ChooseVersion(kFour, reports);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->version, 5u);
}

// ---- replicated state ---------------------------------------------------------------------------

TEST(RestoreChoiceTest, WholeReplicaServesEverySlot) {
  for (MemberId survivor = 0; survivor < 4; ++survivor) {
    const auto choice = ChooseVersion(kFour, {{survivor, At(7, true, {}, {}, kReplicated)}});
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->version, 7u);
    EXPECT_THAT(choice->sources.live, ElementsAre(survivor));
  }
}

TEST(RestoreChoiceTest, FurthestSurvivorSuppliesReplica) {
  // The result does not depend on neighbourhood: the other members of the four are lost.
  for (MemberId other : {1, 2, 3}) {
    const auto choice =
        ChooseVersion(kFour, {{0, At(7, true, {6, 7}, {}, kReplicatedVolatile)},
                              {other, At(8, true, {7, 8}, {}, kReplicatedVolatile)}});
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->version, 8u);
    EXPECT_THAT(choice->sources.live, ElementsAre(other));
  }
}

TEST(RestoreChoiceTest, CopyOfVolatileStateAloneIsNoReplica) {
  // Version 8 is interrupted everywhere, and only volatile state of version 7 was copied.
  const std::string why = WhyNot(kFour, {{0, At(8, false, {7}, {}, kReplicatedVolatile)},
                                         {2, At(8, false, {7}, {}, kReplicatedVolatile)}});
  EXPECT_THAT(why, HasSubstr("version 7 lacks the replicated state"));
}

TEST(RestoreChoiceTest, ReportsNoWholeMemberAndNoCopy) {
  EXPECT_THAT(WhyNot(kFour, {{0, At(8, false, {}, {}, kReplicated)}}),
              HasSubstr("in the middle of an update"));
}

TEST(RestoreChoiceTest, NamesMissingFirstCopyBeforeFirstUpdate) {
  // Nothing is copied before the first update, so volatile state makes no survivor whole.
  EXPECT_THAT(WhyNot(kFour, {{0, At(0, false, {}, {}, kReplicatedVolatile)}}),
              HasSubstr("the first copy exists after the job's first update"));
}

TEST(RestoreChoiceTest, NamesSlotOfLostMemberFirst) {
  const StateNeeds layout{{{0}, {}, {0}}, {{0, 1}, {}, {0, 1}}, {{1}, {}, {1}}};
  const World two{3, {{0, 1, ""}, {1, 1, ""}}};
  EXPECT_THAT(WhyNot(two, {{0, At(0, false, {}, {}, layout)}}),
              HasSubstr("the state of slot 1 (member 1) no longer exists on any member: its owner "
                        "is lost"));
}

TEST(RestoreChoiceTest, UndoesInterruptedUpdateFromPieces) {
  const auto choice = ChooseVersion(kFour, {{0, At(8, false, {7}, {7}, kShardedVolatile)},
                                            {1, At(8, false, {7}, {7}, kShardedVolatile)},
                                            {3, At(8, false, {7}, {7}, kShardedVolatile)}});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->version, 7u);
  EXPECT_THAT(choice->sources.live, IsEmpty());
}

TEST(RestoreChoiceTest, LiveReplicaSuppliesMissingPiece) {
  // Slot 1 has replicated state only; its piece is lost with slots 1 and 2.
  const StateNeeds layout{{{0}, {}, {0}}, {kAll, {}, kAll}};
  const Reports without = {{0, At(8, false, {7}, {7}, layout)},
                           {3, At(8, false, {7}, {7}, layout)}};
  EXPECT_THAT(WhyNot(kFour, without), HasSubstr("the replicated state: the piece of slot 1"));
  const Reports with = {{0, At(8, false, {7}, {7}, layout)}, {3, At(7, true, {7}, {7}, layout)}};
  EXPECT_EQ(ChooseVersion(kFour, with)->version, 7u);
}

TEST(RestoreChoiceTest, RejectsReportOfAnotherWorld) {
  EXPECT_THAT(WhyNot(kFour, {{0, At(8, true, {}, {}, {{{4}, {}, {}}})}}),
              HasSubstr("slot 4 of 4 slots"));
}

// Two tensor-parallel halves with two replicas each: slots 0 and 2, and slots 1 and 3.
TEST(RestoreChoiceTest, EachGroupOfReplicasNeedsASurvivor) {
  const StateNeeds halves{{{0, 2}, {}, {}}, {{1, 3}, {}, {}}};
  EXPECT_TRUE(
      ChooseVersion(kFour, {{0, At(8, true, {}, {}, halves)}, {3, At(8, true, {}, {}, halves)}})
          .ok());
  EXPECT_THAT(WhyNot(kFour, {{0, At(8, true, {}, {}, halves)}, {2, At(8, true, {}, {}, halves)}}),
              HasSubstr("version 8 lacks the state that slots share with slot 1 (member 1)"));
}

}  // namespace
}  // namespace rewire::elastic
