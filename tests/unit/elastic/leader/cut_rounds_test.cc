// The pace of a communicator, and the cuts that follow from it.
#include "reconfig/elastic/leader/cut_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

const Time kFirstLook = Time{} + seconds(5);

TEST(PaceTest, HasNoRateAfterOneLook) {
  Pace pace;
  EXPECT_EQ(pace.issued(), 0u);
  pace.Record(kFirstLook, 1000);
  EXPECT_EQ(pace.issued(), 1000u);
  EXPECT_EQ(pace.During(seconds(1)), 0u);
  EXPECT_EQ(pace.Margin(16, seconds(1)), 16u);
}

TEST(PaceTest, RateIsMeanOverAllLooks) {
  Pace pace;
  pace.Record(kFirstLook, 1000);
  pace.Record(kFirstLook + milliseconds(99), 1000);
  pace.Record(kFirstLook + milliseconds(100), 2000);  // a burst
  EXPECT_EQ(pace.During(milliseconds(10)), 100u);
  pace.Record(kFirstLook + milliseconds(100), 1990);  // a slower member
  EXPECT_EQ(pace.issued(), 2000u);
}

TEST(PaceTest, MarginCoversDescheduledThread) {
  Pace pace;
  pace.Record(kFirstLook, 0);
  pace.Record(kFirstLook + milliseconds(100), 1000);
  EXPECT_EQ(pace.Margin(16, Duration{}), 500u);
  EXPECT_EQ(pace.Margin(600, Duration{}), 600u);
  EXPECT_EQ(pace.Margin(16, milliseconds(25)), 1000u);
  EXPECT_EQ(pace.Margin(16, seconds(100)), kMostAhead);
}

TEST(PaceTest, SlowProgramKeepsConfiguredMargin) {
  Pace pace;
  pace.Record(kFirstLook, 7);
  pace.Record(kFirstLook + seconds(1), 8);
  EXPECT_EQ(pace.Margin(16, milliseconds(10)), 16u);
}

constexpr CommunicatorId kSums{0xaaaaaaaa00000000, 1};
constexpr CommunicatorId kOther{0xbbbbbbbb00000000, 1};

// Rounds in which a communicator issued 1000 operations each 100 ms.
CutRounds Busy() {
  CutRounds rounds;
  rounds.Record(kFirstLook, {{kSums, 0}});
  rounds.Record(kFirstLook + milliseconds(100), {{kSums, 1000}});
  return rounds;
}

TEST(CutRoundsTest, IdleCommunicatorSwitchesAtNextOperationUntilTwoRefusals) {
  CutRounds rounds;
  rounds.Record(kFirstLook, {{kSums, 7}});
  EXPECT_EQ(rounds.ChooseCut(kSums, {}, true, 16, {}), (Cut{kSums, 7, 7}));
  rounds.Refuse(kSums, {});
  EXPECT_EQ(rounds.ChooseCut(kSums, {}, true, 16, {}), (Cut{kSums, 7, 7}));
  rounds.Refuse(kSums, {});
  EXPECT_EQ(rounds.ChooseCut(kSums, {}, true, 16, {}).warm, 7u + (16u << 2));
}

TEST(CutRoundsTest, MarginDoublesWithEachRefusalOfTheCommunicator) {
  CutRounds rounds = Busy();
  EXPECT_EQ(rounds.ChooseCut(kSums, {}, true, 16, {}).warm, 1000u + 500);
  EXPECT_EQ(rounds.Refuse(kOther, {}), 1u);
  EXPECT_EQ(rounds.ChooseCut(kSums, {}, true, 16, {}).warm, 1000u + 500);
  EXPECT_EQ(rounds.Refuse(std::nullopt, {kSums, kOther}), 2u);
  EXPECT_EQ(rounds.ChooseCut(kSums, {}, true, 16, {}).warm, 1000u + 1000);
}

TEST(CutRoundsTest, MarginCoversTheSlowestAnswerAndTheCommit) {
  CutRounds rounds = Busy();
  rounds.Propose(kFirstLook, {});
  rounds.Answered(kFirstLook + milliseconds(10));
  rounds.Answered(kFirstLook + milliseconds(5));
  EXPECT_EQ(rounds.ChooseCut(kSums, {}, true, 16, milliseconds(5)).warm,
            1000u + 2 * 10 * (25 + 20 + 5));
}

TEST(CutRoundsTest, QueuesCutAfterAPendingSwapThatIsNearer) {
  Positions positions;
  Position position;
  position.communicator = kSums;
  position.open = true;
  position.pending = {{3, 1010, 1020}};
  positions.Report(0, position);
  EXPECT_GT(Busy().ChooseCut(kSums, positions, true, 16, {}).warm, 1020u);
  position.pending = {{3, 4000, 4004}};
  positions.Report(0, position);
  EXPECT_EQ(Busy().ChooseCut(kSums, positions, true, 16, {}), (Cut{kSums, 4000, 4004}));
}

TEST(CutRoundsTest, StepIsAheadOfTheFurthestMemberAndMovesAwayWithEachRound) {
  CutRounds rounds;
  rounds.Record(kFirstLook, {{kUpdateBoundary, 5}});
  EXPECT_EQ(rounds.ChooseStep(3, {}).cut, 5u + 2);
  EXPECT_EQ(rounds.ChooseStep(9, {}).cut, 9u + 2);
  rounds.Refuse(std::nullopt, {});
  EXPECT_EQ(rounds.ChooseStep(9, {}).cut, 9u + 4);
}

TEST(CutRoundsTest, ProposalDropsEarlierPledges) {
  CutRounds rounds;
  rounds.Pledge(4);
  rounds.Propose(kFirstLook, {{kSums, 1, 2}});
  EXPECT_TRUE(rounds.pledged().empty());
  rounds.Pledge(1);
  EXPECT_THAT(rounds.pledged(), testing::ElementsAre(1));
  EXPECT_EQ(rounds.cuts().size(), 1u);
}

}  // namespace
}  // namespace rewire::elastic
