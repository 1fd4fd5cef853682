// The pace of a communicator, and the cuts that follow from it.
#include "reconfig/elastic/leader/cut_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

const Time kStart = Time{} + seconds(5);

TEST(PaceTest, HasNoRateAfterOneLook) {
  Pace pace;
  EXPECT_EQ(pace.issued(), 0u);
  pace.Record(kStart, 1000);
  EXPECT_EQ(pace.issued(), 1000u);
  EXPECT_EQ(pace.During(seconds(1)), 0u);
  EXPECT_EQ(pace.Margin(16, seconds(1)), 16u);
}

TEST(PaceTest, RateIsMeanOverAllLooks) {
  Pace pace;
  pace.Record(kStart, 1000);
  pace.Record(kStart + milliseconds(99), 1000);
  pace.Record(kStart + milliseconds(100), 2000);  // a burst
  EXPECT_EQ(pace.During(milliseconds(10)), 100u);
  pace.Record(kStart + milliseconds(100), 1990);  // a slower member
  EXPECT_EQ(pace.issued(), 2000u);
}

TEST(PaceTest, MarginCoversDescheduledThread) {
  Pace pace;
  pace.Record(kStart, 0);
  pace.Record(kStart + milliseconds(100), 1000);
  EXPECT_EQ(pace.Margin(16, Duration{}), 500u);
  EXPECT_EQ(pace.Margin(600, Duration{}), 600u);
  EXPECT_EQ(pace.Margin(16, milliseconds(25)), 1000u);
  EXPECT_EQ(pace.Margin(16, seconds(100)), kMostAhead);
}

TEST(PaceTest, SlowProgramKeepsConfiguredMargin) {
  Pace pace;
  pace.Record(kStart, 7);
  pace.Record(kStart + seconds(1), 8);
  EXPECT_EQ(pace.Margin(16, milliseconds(10)), 16u);
}

constexpr CommunicatorId kComm{0xaaaaaaaa00000000, 1};
constexpr CommunicatorId kOther{0xbbbbbbbb00000000, 1};

// Rounds in which a communicator issued 1000 operations each 100 ms.
CutRounds Busy() {
  CutRounds rounds;
  rounds.Record(kStart, {{kComm, 0}});
  rounds.Record(kStart + milliseconds(100), {{kComm, 1000}});
  return rounds;
}

TEST(CutRoundsTest, IdleCommunicatorSwitchesAtNextOperationUntilTwoRefusals) {
  CutRounds rounds;
  rounds.Record(kStart, {{kComm, 7}});
  EXPECT_EQ(rounds.ChooseCut(kComm, {}, true, 16, {}), (Cut{kComm, 7, 7}));
  rounds.Refuse(kComm, {});
  EXPECT_EQ(rounds.ChooseCut(kComm, {}, true, 16, {}), (Cut{kComm, 7, 7}));
  rounds.Refuse(kComm, {});
  EXPECT_EQ(rounds.ChooseCut(kComm, {}, true, 16, {}).warm, 7u + (16u << 2));
}

TEST(CutRoundsTest, MarginDoublesWithEachRefusalOfTheCommunicator) {
  CutRounds rounds = Busy();
  EXPECT_EQ(rounds.ChooseCut(kComm, {}, true, 16, {}).warm, 1000u + 500);
  EXPECT_EQ(rounds.Refuse(kOther, {}), 1u);
  EXPECT_EQ(rounds.ChooseCut(kComm, {}, true, 16, {}).warm, 1000u + 500);
  EXPECT_EQ(rounds.Refuse(std::nullopt, {kComm, kOther}), 2u);
  EXPECT_EQ(rounds.ChooseCut(kComm, {}, true, 16, {}).warm, 1000u + 1000);
}

TEST(CutRoundsTest, MarginCoversTheSlowestAnswerAndTheCommit) {
  CutRounds rounds = Busy();
  rounds.Propose(kStart, {});
  rounds.Answered(kStart + milliseconds(10));
  rounds.Answered(kStart + milliseconds(5));
  EXPECT_EQ(rounds.ChooseCut(kComm, {}, true, 16, milliseconds(5)).warm,
            1000u + 2 * 10 * (25 + 20 + 5));
}

TEST(CutRoundsTest, QueuesCutAfterAPendingSwapThatIsNearer) {
  Positions positions;
  Position position;
  position.communicator = kComm;
  position.open = true;
  position.pending = {{3, 1010, 1020}};
  positions.Report(0, position);
  EXPECT_GT(Busy().ChooseCut(kComm, positions, true, 16, {}).warm, 1020u);
  position.pending = {{3, 4000, 4004}};
  positions.Report(0, position);
  EXPECT_EQ(Busy().ChooseCut(kComm, positions, true, 16, {}), (Cut{kComm, 4000, 4004}));
}

TEST(CutRoundsTest, StepIsAheadOfTheFurthestMemberAndMovesAwayWithEachRound) {
  CutRounds rounds;
  rounds.Record(kStart, {{kUpdateBoundary, 5}});
  EXPECT_EQ(rounds.ChooseStep(3, {}).cut, 5u + 2);
  EXPECT_EQ(rounds.ChooseStep(9, {}).cut, 9u + 2);
  rounds.Refuse(std::nullopt, {});
  EXPECT_EQ(rounds.ChooseStep(9, {}).cut, 9u + 4);
}

TEST(CutRoundsTest, ProposalDropsEarlierPledges) {
  CutRounds rounds;
  rounds.Pledge(4);
  rounds.Propose(kStart, {{kComm, 1, 2}});
  EXPECT_TRUE(rounds.pledged().empty());
  rounds.Pledge(1);
  EXPECT_THAT(rounds.pledged(), testing::ElementsAre(1));
  EXPECT_EQ(rounds.cuts().size(), 1u);
}

}  // namespace
}  // namespace rewire::elastic
