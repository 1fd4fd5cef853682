// The leader loses members, its store or itself.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "reconfig/transition/leader.h"
#include "tests/unit/transition/leader_driver.h"

namespace rewire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// ---- losses -------------------------------------------------------------------------------------

TEST_F(LeaderTest, ADeathIsToldAtOnceAndHealed) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(1));
  EXPECT_FALSE(d.Sent<Lost>(1).has_value());
  d.Store();
  EXPECT_EQ(d.Sent<Prepare>(0).value().kind, TransitionKind::kLoss);
  d.Prepare({0, 2}, 0);
  EXPECT_EQ(d.leader.phase(), Phase::kArmed);
  d.BoundaryAll({0, 2});
  EXPECT_EQ(d.Sent<Restore>(2).value().version, 8u);
  d.VerifyAll({0, 2});
  d.Store();
  EXPECT_THAT(Ids(d.Sent<Commit>(0).value().record.world), ElementsAre(0, 2));
  d.Finish({0, 2});
  EXPECT_TRUE(d.leader.steady());
  d.Connect(1);
  EXPECT_THAT(d.Sent<Refused>(1).value().reason, HasSubstr("lost"));
}

TEST_F(LeaderTest, AReplicaOfAnySurvivorIsEnoughWhereNothingIsSharded) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  d.leader.OnDisconnect(d.now, 2, &d.out);
  d.Store();  // of the loss of one
  d.Store();  // of both
  d.Prepare({0}, 0);
  d.Say(0, AtBoundary{d.Sent<Prepare>(0).value().epoch, 8, true, {}, {}, {true, false, {}, {}}});
  EXPECT_EQ(d.Sent<Restore>(0).value().version, 8u);
  EXPECT_THAT(d.Sent<Restore>(0).value().sources.live, ElementsAre(0));
}

// ---- drains with a deadline ---------------------------------------------------------------------

TEST_F(LeaderTest, ADrainedMemberThatHangsIsLostAtItsDeadline) {
  const uint64_t id = d.Ask({RequestKind::kDrain, 0, {1}, seconds(3), ""});
  d.Store();
  d.Prepare(kThree, 0);
  d.PledgeAll(kThree);
  d.BoundaryAll({0, 2});
  ASSERT_EQ(d.leader.phase(), Phase::kArmed);
  d.Pass(milliseconds(2800));
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  d.Pass(milliseconds(400));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(1));
  EXPECT_EQ(d.Last<EndProcess>()->member, 1u);
  EXPECT_TRUE(d.Noted("it was not gone in time: drain 1 within 3000 ms"));
  d.Store();
  d.Recover({0, 2});
  EXPECT_TRUE(d.leader.steady());
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kDone);
}

TEST_F(LeaderTest, ADrainsDeadlineWaitsForTheRecoveryFromALoss) {
  d.Ask({RequestKind::kDrain, 0, {1}, seconds(3), ""});
  d.Store();
  d.Pass(seconds(2));
  d.leader.OnDisconnect(d.now, 2, &d.out);
  d.Store();
  d.Prepare({0, 1}, 0);
  d.Pass(seconds(5));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
  d.BoundaryAll({0, 1});
  d.VerifyAll({0, 1});
  d.Store();
  d.Pass(seconds(4));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(1));
}

// ---- reclaim notices ----------------------------------------------------------------------------

TEST_F(LeaderTest, TheJobEndsWhenEveryMemberHasAReclaimNotice) {
  for (MemberId m : {0u, 1u}) d.Say(m, ReclaimNotice{60000});
  EXPECT_FALSE(d.Last<EndJob>().has_value());
  d.Say(2, ReclaimNotice{60000});
  EXPECT_THAT(d.Last<EndJob>().value().reason,
              HasSubstr("every member of the world has a reclaim"));
  for (MemberId m : kThree) EXPECT_TRUE(d.Sent<Stop>(m).has_value()) << m;
  EXPECT_EQ(d.leader.phase(), Phase::kStopped);
}

TEST_F(LeaderTest, TheJobEndsWhenOnlyReclaimedMembersSurviveALoss) {
  for (MemberId m : {0u, 1u}) d.Say(m, ReclaimNotice{60000});
  d.leader.OnDisconnect(d.now, 2, &d.out);
  EXPECT_THAT(d.Last<EndJob>().value().reason,
              HasSubstr("every member of the world has a reclaim"));
}

TEST_F(LeaderTest, AJoinerTakesTheStateOfTheOnlyMemberThatIsReclaimed) {
  LeaderDriver one(LeaderDriver::Options(1));
  one.Form(1);
  one.Ask({RequestKind::kReplace, 0, {0}, {}, ""});
  one.Store();
  one.Say(0, ReclaimNotice{60000});
  EXPECT_FALSE(one.Last<EndJob>().has_value());
  one.leader.OnSpawnFailed(one.now, std::vector<MemberId>{1}, "exit status 127", &one.out);
  EXPECT_TRUE(one.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, AReclaimNoticeAfterAStallHasItsFullTime) {
  d.now += seconds(600);
  d.Say(2, ReclaimNotice{5000});
  d.Pass(milliseconds(4500));
  EXPECT_FALSE(d.Noted("member 2 is lost"));
  d.Pass(seconds(1));
  EXPECT_TRUE(d.Noted("member 2 is lost: it was not gone in time"));
}

// ---- silence ------------------------------------------------------------------------------------

TEST_F(LeaderTest, OneSilentMemberAmongOthersIsLostInTheStatedTime) {
  d.silent = {2};
  d.Pass(milliseconds(2500));
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  d.Pass(seconds(1));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
  EXPECT_TRUE(d.Noted("member 2 is lost: it was silent"));
}

TEST_F(LeaderTest, TimeForWhichAMemberWaitsForAProcessorIsNoSilence) {
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
  // Its threads do not wait any more, and it says nothing.
  d.Pass(milliseconds(3500));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
}

TEST_F(LeaderTest, TwoSilentMembersOfThreeAreLost) {
  d.silent = {1, 2};
  d.Pass(milliseconds(3500));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(1, 2));
}

TEST_F(LeaderTest, OneOfTwoThatHangsIsLost) {
  LeaderDriver two(LeaderDriver::Options(2));
  two.Form(2);
  two.silent = {0};
  two.Pass(milliseconds(3500));
  EXPECT_THAT(two.Sent<Lost>(1).value().members, ElementsAre(0));
}

TEST_F(LeaderTest, WhenEveryMemberIsSilentNobodyIsLostAndItIsSaid) {
  d.silent = {0, 1, 2};
  d.Pass(seconds(60));
  EXPECT_TRUE(d.Noted("none of them counts as lost"));
  // They go on one after the other.
  d.silent = {1, 2};
  d.Pass(milliseconds(1500));
  d.silent = {2};
  d.Pass(milliseconds(1000));
  d.silent = {};
  d.Pass(seconds(10));
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  EXPECT_FALSE(d.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, WhoStaysSilentWhenTheOthersGoOnIsLost) {
  d.silent = {0, 1, 2};
  d.Pass(seconds(60));
  d.silent = {2};
  d.Pass(milliseconds(3500));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
}

TEST_F(LeaderTest, TheOnlyMemberIsNotLostByItsSilence) {
  LeaderDriver one(LeaderDriver::Options(1));
  one.Form(1);
  one.silent = {0};
  one.Pass(seconds(60));
  EXPECT_FALSE(one.Last<EndJob>().has_value());
  one.leader.OnDisconnect(one.now, 0, &one.out);
  EXPECT_TRUE(one.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, AJoinerSaysNothingAboutTheMembersOfTheWorld) {
  d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  d.Connect(3);
  d.silent = {0, 1, 2};
  d.Pass(seconds(10));
  EXPECT_FALSE(d.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, ASilentMemberIsLostHoweverOftenTheOthersSpeak) {
  // As the agent does: messages first, and a tick only when it is due.
  const Time end = d.now + seconds(10);
  while (d.now < end && !d.Sent<Lost>(0)) {
    d.now += milliseconds(70);
    for (const MemberId m : {0, 1}) d.Say(m, Heartbeat{});
    if (d.now >= *d.leader.NextDeadline()) d.leader.OnTick(d.now, &d.out);
  }
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
  EXPECT_LT(d.now, end - seconds(6));
}

// An overloaded agent reads late, and what it reads is from everyone who lives.
TEST_F(LeaderTest, ASilentMemberIsLostWhenTheOthersAreHeardLate) {
  LeaderOptions often = LeaderDriver::Options(3);
  often.heartbeat = milliseconds(100);
  LeaderDriver late(often);
  late.Form(3);
  late.silent = {2};
  late.Pass(seconds(10));
  EXPECT_THAT(late.Sent<Lost>(0).value().members, ElementsAre(2));
}

TEST_F(LeaderTest, AfterItStoodStillItselfNobodyIsSilent) {
  d.now += seconds(60);
  d.leader.OnTick(d.now, &d.out);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  EXPECT_TRUE(d.Noted("the agent did not run for"));
}

TEST_F(LeaderTest, StallsOfTheAgentAddNothingToASilence) {
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

TEST_F(LeaderTest, AStallOfTheAgentBringsNoPhaseNearerToItsDeadline) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
  d.now += seconds(600);
  d.Pass(seconds(2));
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
  d.Pass(seconds(60));
  EXPECT_EQ(d.leader.phase(), Phase::kSteady);  // REWIRE_BUILD_MS is over
}

TEST_F(LeaderTest, AStallOfAllMembersDuringALossDoesNotEndTheJob) {
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

TEST_F(LeaderTest, ANewLeaderWaitsLongerWhileNobodyIsBack) {
  LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
  next.Pass(seconds(30));
  EXPECT_EQ(next.leader.phase(), Phase::kRecovering);
  for (MemberId m : kThree) next.Connect(m, true, 1);
  EXPECT_EQ(next.leader.phase(), Phase::kSteady);
  EXPECT_FALSE(next.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, ANewLeaderWaitsForAllMembersBeforeItEndsAReclaimedJob) {
  for (const bool all : {false, true}) {
    LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
    for (MemberId m : kThree) {
      next.Connect(m, true, 1);
      if (all || m == 0) next.Say(m, ReclaimNotice{60000});
      if (m == 1) {
        EXPECT_FALSE(next.Last<EndJob>().has_value());
      }
    }
    EXPECT_EQ(next.Last<EndJob>().has_value(), all);
  }
}

TEST_F(LeaderTest, ANewLeaderEndsNoLateMemberWhileAnotherIsMissing) {
  LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
  for (MemberId m : {0u, 1u}) next.Connect(m, true, 1);
  next.Say(1, ReclaimNotice{5000});
  next.Pass(seconds(9));
  EXPECT_FALSE(next.Noted("is lost"));
  next.Pass(seconds(2));
  EXPECT_TRUE(next.Noted("member 2 is lost: it did not come back"));
  EXPECT_FALSE(next.Noted("member 1 is lost"));
}

TEST_F(LeaderTest, ANewLeaderHealsALossFromBeforeAllWereBack) {
  for (const bool all : {false, true}) {
    LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
    for (MemberId m : {0u, 1u}) next.Connect(m, true, 1);
    next.Say(1, Finished{});
    next.leader.OnFailedExit(next.now, 1, "exit status 1", &next.out);
    EXPECT_TRUE(next.Noted("member 1 is lost"));
    if (all) {
      next.Connect(2, true, 1);
    } else {
      next.Pass(seconds(11));
    }
    EXPECT_EQ(next.leader.phase(), Phase::kReserve);
    EXPECT_TRUE(next.Noted(all ? "begins: loss of 1" : "begins: loss of 1, 2"));
  }
}

TEST_F(LeaderTest, ADeathDuringAChangeAbortsItFirstAndTheRequestIsNotLost) {
  const uint64_t id = d.Ask({RequestKind::kReplace, 0, {1}, {}, ""});
  d.Store();
  d.leader.OnDisconnect(d.now, 1, &d.out);
  EXPECT_EQ(d.Last<EndProcess>()->member, 3u);
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kWaiting);
  d.Store();
  d.Recover({0, 2});
  d.Store();
  EXPECT_THAT(d.Last<Spawn>()->members, ElementsAre(4));  // the replacement is still due
  EXPECT_EQ(d.Last<Spawn>()->slots, 3u);
}

TEST_F(LeaderTest, AChangeThatIsCalledOffEndsItsJoinersAndNotTheJob) {
  d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  d.Connect(3);
  ASSERT_TRUE(d.Sent<Welcome>(3).has_value());
  d.Ask({RequestKind::kDrain, 0, {1}, seconds(60), ""});
  EXPECT_THAT(d.Sent<Refused>(3).value().reason, HasSubstr("a change with a deadline goes first"));
  EXPECT_EQ(d.Last<EndProcess>()->member, 3u);
  for (MemberId m = 0; m < 4; ++m) EXPECT_FALSE(d.Sent<Stop>(m).has_value()) << m;
  EXPECT_FALSE(d.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, AJobWithoutMembersEndsWithAReason) {
  for (MemberId m : kThree) d.leader.OnDisconnect(d.now, m, &d.out);
  EXPECT_THAT(d.Last<EndJob>().value().reason, HasSubstr("every member"));
  EXPECT_EQ(d.leader.phase(), Phase::kStopped);
}

TEST_F(LeaderTest, ASecondDeathBeginsTheLossAnew) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  d.Store();
  d.Prepare({0, 2}, 0);
  d.leader.OnDisconnect(d.now, 2, &d.out);
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(1, 2));
  d.Store();
  EXPECT_EQ(d.Sent<Prepare>(0).value().epoch, 3u);
  d.Prepare({0}, 0);
  d.Say(0, AtBoundary{3, 8, true, {8}, {8}, kAllSharded});
  EXPECT_THAT(d.Sent<Stop>(0).value().reason, HasSubstr("slot 1 (member 1)"));
  EXPECT_THAT(d.Last<EndJob>().value().reason, HasSubstr("slot 1 (member 1)"));
  EXPECT_EQ(d.leader.phase(), Phase::kStopped);
}

TEST_F(LeaderTest, ADeathWhileTheStoreWritesWaitsForItsAnswer) {
  d.Ask({RequestKind::kDrain, 0, {0}, {}, ""});
  d.Store();
  d.Prepare(kThree, 1);
  d.PledgeAll(kThree);
  d.BoundaryAll(kThree);
  d.VerifyAll(kThree);
  ASSERT_EQ(d.leader.phase(), Phase::kCommitting);
  d.leader.OnDisconnect(d.now, 2, &d.out);
  EXPECT_FALSE(d.Sent<Lost>(1).has_value());
  d.Store();
  EXPECT_TRUE(d.Sent<Commit>(1).has_value());
  EXPECT_EQ(d.Sent<Lost>(1).value().epoch, 2u);
}

TEST_F(LeaderTest, AnUnmodifiedProgramIsToldAndNotHealed) {
  LeaderDriver plain(LeaderDriver::Options(2));
  plain.Form(2, false);
  plain.leader.OnDisconnect(plain.now, 1, &plain.out);
  EXPECT_THAT(plain.Sent<Lost>(0).value().members, ElementsAre(1));
  EXPECT_FALSE(plain.Store());
  EXPECT_THAT(plain.AskInVain({RequestKind::kRebuild, 0, {}, {}, ""}), HasSubstr("cannot go on"));
}

TEST_F(LeaderTest, WhoHasFinishedIsNotLost) {
  for (MemberId m : kThree) {
    d.Say(m, Finished{});
    d.leader.OnDisconnect(d.now, m, &d.out);
  }
  EXPECT_TRUE(d.leader.done());
  EXPECT_FALSE(d.Sent<Lost>(2).has_value());
}

TEST_F(LeaderTest, AMemberThatDetachedAndThenFailedIsLost) {
  d.Say(1, Finished{});
  d.leader.OnDisconnect(d.now, 1, &d.out);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  d.leader.OnFailedExit(d.now, 1, "exited with status 1", &d.out);
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(1));
  EXPECT_TRUE(d.Noted("it had detached, and exited with status 1"));
  // The others go on without it.
  d.Store();
  EXPECT_EQ(d.Sent<Prepare>(0).value().kind, TransitionKind::kLoss);
}

TEST_F(LeaderTest, AFailedExitAfterTheJobOrWithoutDetachChangesNothing) {
  d.leader.OnFailedExit(d.now, 1, "exited with status 1", &d.out);  // its disconnect says it
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  for (MemberId m : kThree) d.Say(m, Finished{});
  d.leader.OnFailedExit(d.now, 1, "exited with status 1", &d.out);
  EXPECT_TRUE(d.leader.done());
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
}

// The others may be inside the creation of the next communicator.
TEST_F(LeaderTest, AnUnmodifiedProgramThatFailsWithoutCommunicatorsIsLost) {
  for (const bool disconnects_first : {true, false}) {
    LeaderDriver plain(LeaderDriver::Options(2));
    plain.Form(2, false);
    for (MemberId m : {0u, 1u}) plain.Say(m, CommunicatorDestroyed{kComm});
    if (disconnects_first) plain.leader.OnDisconnect(plain.now, 1, &plain.out);
    EXPECT_FALSE(plain.Sent<Lost>(0).has_value());
    plain.leader.OnFailedExit(plain.now, 1, "was killed by signal 9 (Killed)", &plain.out);
    EXPECT_THAT(plain.Sent<Lost>(0).value().members, ElementsAre(1));
    EXPECT_TRUE(plain.Noted("it had no communicators, and was killed by signal 9 (Killed)"));
    plain.leader.OnDisconnect(plain.now, 1, &plain.out);
    EXPECT_FALSE(plain.leader.done());
  }
}

// ---- the store, and another leader --------------------------------------------------------------

TEST_F(LeaderTest, AnUnansweredSwapIsSentAgainAndRecognised) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  const WorldRecord wanted = d.Last<CompareAndSwap>()->record;
  d.leader.OnStoreResult(d.now, absl::UnavailableError("disk"), &d.out);
  d.out.clear();
  d.Pass(milliseconds(400));
  ASSERT_TRUE(d.Last<CompareAndSwap>().has_value());
  EXPECT_EQ(d.Last<CompareAndSwap>()->record, wanted);
  d.leader.OnStoreResult(d.now, StoreAnswer{false, wanted}, &d.out);  // it had been written
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
}

TEST_F(LeaderTest, AnotherLeadersRecordEndsThisOne) {
  const uint64_t id = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  WorldRecord other = d.leader.record();
  other.revision += 5;
  d.leader.OnStoreResult(d.now, StoreAnswer{false, other}, &d.out);
  EXPECT_EQ(d.leader.phase(), Phase::kStopped);
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kFailed);
  EXPECT_TRUE(d.Last<Kick>().has_value());
}

TEST_F(LeaderTest, ARestartedLeaderFencesThenWelcomes) {
  const WorldRecord record = d.leader.record();
  Leader next(LeaderDriver::Options(3), record);
  std::vector<LeaderAction> out;
  next.Start(d.now, &out);
  next.OnConnect(d.now, Hello{Hello{}.protocol, 0, 100, 1, true, "addr", false, 1, 0, {}}, &out);
  ASSERT_EQ(out.size(), 2u);  // the write, and a note: nobody is welcomed on an unfenced record
  // What the leader before it was still writing turns out to be the truth.
  WorldRecord landed = record;
  landed.revision += 1;
  landed.world.epoch = landed.reserved_epoch = 2;
  next.OnStoreResult(d.now, StoreAnswer{false, landed}, &out);
  const auto again = std::get<CompareAndSwap>(out.back());
  EXPECT_EQ(again.expected_revision, landed.revision);
  next.OnStoreResult(d.now, StoreAnswer{true, again.record}, &out);
  EXPECT_EQ(next.record().world.epoch, 2u);
  EXPECT_EQ(next.phase(), Phase::kRecovering);
}

TEST_F(LeaderTest, ANewJobOnTheStoreOfAnOldOneIsToldSo) {
  LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
  next.leader.OnConnect(next.now, Hello{Hello{}.protocol, 0, 555, 1, true, "", false, 0, 0, {}},
                        &next.out);
  EXPECT_THAT(next.Sent<Refused>(0).value().reason,
              HasSubstr("the store is of a job that has ended or still runs"));
}

TEST_F(LeaderTest, WhoDoesNotComeBackInTheGraceTimeIsLost) {
  WorldRecord record = d.leader.record();
  LeaderDriver next(LeaderDriver::Options(3), record);
  next.Connect(0, true, 1);
  next.Connect(2, true, 1);
  EXPECT_EQ(next.leader.phase(), Phase::kRecovering);
  next.Pass(seconds(11));
  EXPECT_THAT(next.Sent<Lost>(0).value().members, ElementsAre(1));
}

TEST_F(LeaderTest, MembersThatWereToldOfALossAreHealedByTheNextLeader) {
  LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
  next.Connect(0, true, 1, true);
  next.Connect(1, true, 1);
  next.Connect(2, true, 1);
  EXPECT_TRUE(
      next.Sent<Lost>(1).value().members.empty());  // all live, but all must abort and meet again
  next.Store();
  EXPECT_EQ(next.Sent<Prepare>(1).value().kind, TransitionKind::kLoss);
}

TEST_F(LeaderTest, StrangersAreRefused) {
  d.leader.OnConnect(d.now, Hello{Hello{}.protocol + 1, 0, 100, 1, true, "", false, 0, 0, {}},
                     &d.out);
  EXPECT_THAT(d.Sent<Refused>(0).value().reason,
              HasSubstr(absl::StrCat("protocol ", Hello{}.protocol + 1)));
  d.Connect(9);
  EXPECT_THAT(d.Sent<Refused>(9).value().reason, HasSubstr("not one of this job's"));
  d.leader.OnConnect(d.now, Hello{Hello{}.protocol, 1, 555, 1, true, "", false, 0, 0, {}}, &d.out);
  EXPECT_THAT(d.Sent<Refused>(1).value().reason, HasSubstr("another process"));
}

}  // namespace
}  // namespace rewire
