// The leader judges silence: compared with other members, during stalls of a host, and for starved
// processes.
#include <gmock/gmock.h>

#include "reconfig/elastic/leader/leader.h"
#include "tests/unit/elastic/leader/leader_driver.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;

TEST_F(LeaderTest, LosesSilentMemberAfterSilenceLimit) {
  d.silent = {2};
  d.Pass(milliseconds(2500));
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  d.Pass(seconds(1));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
  EXPECT_TRUE(d.Noted("member 2 is lost: it was silent"));
}

TEST_F(LeaderTest, WaitForProcessorIsNoSilence) {
  d.silent = {2};
  for (int i = 0; i < 50; ++i) {
    d.Pass(milliseconds(400));
    for (const MemberId m : d.leader.Quiet()) {
      EXPECT_EQ(m, 2u);
      d.leader.OnStarved(d.now, m, milliseconds(400), &d.out);
    }
  }
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  EXPECT_TRUE(d.Noted("member 2 is silent because its threads wait for a processor"));
  // Its threads have stopped waiting, and it sends nothing.
  d.Pass(milliseconds(3500));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
}

TEST_F(LeaderTest, LosesTwoSilentMembersOfThree) {
  d.silent = {1, 2};
  d.Pass(milliseconds(3500));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(1, 2));
}

TEST_F(LeaderTest, LosesHangingMemberOfTwo) {
  LeaderDriver two(LeaderDriver::Options(2));
  two.Form(2);
  two.silent = {0};
  two.Pass(milliseconds(3500));
  EXPECT_THAT(two.Sent<Lost>(1).value().members, ElementsAre(0));
}

TEST_F(LeaderTest, WarnsAndLosesNobodyWhenAllAreSilent) {
  d.silent = {0, 1, 2};
  d.Pass(seconds(60));
  EXPECT_TRUE(d.Noted("none of them counts as lost"));
  // The members continue one after the other.
  d.silent = {1, 2};
  d.Pass(milliseconds(1500));
  d.silent = {2};
  d.Pass(milliseconds(1000));
  d.silent = {};
  d.Pass(seconds(10));
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  EXPECT_FALSE(d.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, MemberSilentWhileOthersContinueIsLost) {
  d.silent = {0, 1, 2};
  d.Pass(seconds(60));
  d.silent = {2};
  d.Pass(milliseconds(3500));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
}

TEST_F(LeaderTest, KeepsSilentOnlyMember) {
  LeaderDriver one(LeaderDriver::Options(1));
  one.Form(1);
  one.silent = {0};
  one.Pass(seconds(60));
  EXPECT_FALSE(one.Last<EndJob>().has_value());
  one.leader.OnDisconnect(one.now, 0, &one.out);
  EXPECT_TRUE(one.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, JoinerDoesNotCountAsSpeakingMember) {
  d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  d.Connect(3);
  d.silent = {0, 1, 2};
  d.Pass(seconds(10));
  EXPECT_FALSE(d.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, LosesSilentMemberWhileOthersSpeakOften) {
  // The order is the agent's: messages first, and a tick only when it is due.
  const Time end = d.now + seconds(10);
  while (d.now < end && !d.Sent<Lost>(0)) {
    d.now += milliseconds(70);
    for (const MemberId m : {0, 1}) d.Say(m, Heartbeat{});
    if (d.now >= *d.leader.NextDeadline()) d.leader.OnTick(d.now, &d.out);
  }
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
  EXPECT_LT(d.now, end - seconds(6));
}

// An overloaded agent reads late, and it reads messages from every live member.
TEST_F(LeaderTest, LosesSilentMemberWhenOthersAreHeardLate) {
  LeaderOptions often = LeaderDriver::Options(3);
  often.heartbeat = milliseconds(100);
  LeaderDriver late(often);
  late.Form(3);
  late.silent = {2};
  late.Pass(seconds(10));
  EXPECT_THAT(late.Sent<Lost>(0).value().members, ElementsAre(2));
}

TEST_F(LeaderTest, NoMemberIsSilentAfterLeaderStalled) {
  d.now += seconds(60);
  d.leader.OnTick(d.now, &d.out);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  EXPECT_TRUE(d.Noted("the agent did not run for"));
}

// Programs may take long before they attach.
TEST(LeaderStartTest, WaitingForTheFirstMemberIsNoStall) {
  LeaderDriver d(LeaderDriver::Options(2));
  for (const Time end = d.now + seconds(20); d.now < end;) {
    d.now = std::min(end, d.leader.NextDeadline().value_or(end));
    d.leader.OnTick(d.now, &d.out);
  }
  d.Connect(0);
  d.leader.OnTick(d.now, &d.out);
  EXPECT_FALSE(d.Noted("the agent did not run for"));
}

TEST_F(LeaderTest, StallsOfAgentDoNotCountAsSilence) {
  for (int i = 0; i < 50; ++i) {
    d.now += seconds(10);
    for (const MemberId m : {0, 1}) d.Say(m, Heartbeat{});
    d.leader.OnTick(d.now, &d.out);
  }
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  d.silent = {2};
  d.Pass(milliseconds(3500));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
}

TEST_F(LeaderTest, StallOfAgentMovesPhaseDeadline) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
  d.now += seconds(600);
  d.Pass(seconds(2));
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
  d.Pass(seconds(60));
  EXPECT_EQ(d.leader.phase(), Phase::kSteady);  // REWIRE_BUILD_MS has passed
}

TEST_F(LeaderTest, StallOfAllMembersDuringLossKeepsJob) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  d.Store();
  ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
  d.silent = {0, 2};
  d.Pass(seconds(3600));
  EXPECT_FALSE(d.Last<EndJob>().has_value());
  d.silent = {};
  d.Pass(seconds(1));
  d.Prepare({0, 2}, 0);
  d.BoundaryAll({0, 2});
  d.VerifyAll({0, 2});
  d.Store();
  EXPECT_THAT(Ids(d.Sent<Commit>(0).value().record.world), ElementsAre(0, 2));
}

}  // namespace
}  // namespace rewire::elastic
