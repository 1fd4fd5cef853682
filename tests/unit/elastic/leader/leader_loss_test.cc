// The leader loses members, its store or itself.
#include <gmock/gmock.h>

#include "reconfig/elastic/leader/leader.h"
#include "tests/unit/elastic/leader/leader_driver.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// ---- losses -------------------------------------------------------------------------------------

TEST_F(LeaderTest, ReportsLossAtOnceAndRestoresWorld) {
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

TEST_F(LeaderTest, RestoresWhileMembersBuild) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  d.Store();
  const Epoch epoch = d.Sent<Prepare>(0).value().epoch;
  for (MemberId m : {0, 2}) {
    EXPECT_FALSE(d.Sent<Restore>(0).has_value());
    d.Say(m, AtBoundary{epoch, 8, true, {8}, {8}, kAllSharded});
  }
  EXPECT_EQ(d.Sent<Restore>(2).value().version, 8u);
  d.Say(0, Verified{epoch, true, "", 10, 10});
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
  d.Prepare({0, 2}, 0);
  EXPECT_EQ(d.leader.phase(), Phase::kAtBoundary);
  d.Say(2, Verified{epoch, true, "", 10, 10});
  EXPECT_EQ(d.leader.phase(), Phase::kCommitting);
}

// Member 0 alone has finished the update. Its death during the build must not cost the others'
// state, which has no copies.
TEST_F(LeaderTest, OverwritesNoWholeStateWhileMembersBuild) {
  const StateNeeds replicated{{{0, 1, 2}, {}, {}}};
  d.leader.OnDisconnect(d.now, 1, &d.out);
  d.Store();
  const Epoch epoch = d.Sent<Prepare>(0).value().epoch;
  d.Say(0, AtBoundary{epoch, 8, true, {}, {}, replicated});
  d.Say(2, AtBoundary{epoch, 7, true, {}, {}, replicated});
  EXPECT_FALSE(d.Sent<Restore>(2).has_value());
  d.Prepare({0, 2}, 0);
  EXPECT_EQ(d.leader.phase(), Phase::kAtBoundary);
  EXPECT_EQ(d.Sent<Restore>(2).value().version, 8u);
}

TEST_F(LeaderTest, RestoresAgainAfterABuildThatFailed) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  d.Store();
  const Epoch first = d.Sent<Prepare>(0).value().epoch;
  for (MemberId m : {0, 2}) {
    d.Say(m, AtBoundary{first, 8, true, {8}, {8}, kAllSharded});
    d.Say(m, Verified{first, true, "", 10, 10});
  }
  d.Say(0, Prepared{first, false, "no descriptors", 0, {}});
  EXPECT_THAT(d.Sent<Abort>(2).value().reason, HasSubstr("no descriptors"));
  d.Store();
  d.Pass(seconds(1));
  // Member 2 has overwritten an update that was not whole.
  d.Prepare({0, 2}, 0);
  EXPECT_EQ(d.leader.phase(), Phase::kArmed);
  d.Say(0, AtBoundary{d.epoch(), 8, true, {8}, {8}, kAllSharded});
  d.Say(2, AtBoundary{d.epoch(), 8, false, {8}, {8}, kAllSharded});
  EXPECT_THAT(d.Sent<Restore>(2).value().sources.live, ElementsAre(0));
  EXPECT_EQ(d.Sent<Restore>(2).value().epoch, d.epoch());
  d.VerifyAll({0, 2});
  EXPECT_EQ(d.leader.phase(), Phase::kCommitting);
}

TEST_F(LeaderTest, AMemberThatEndsDuringTheRecoveryCostsOneAttempt) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  d.Store();
  const Epoch epoch = d.Sent<Prepare>(0).value().epoch;
  d.Say(2, Prepared{epoch, false, "the process is ending", 0, {}});
  d.Store();
  d.Pass(milliseconds(300));
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);
  d.leader.OnDisconnect(d.now, 2, &d.out);
  d.Store();
  EXPECT_THAT(Ids(d.Sent<Prepare>(0).value().to), ElementsAre(0));
}

TEST_F(LeaderTest, LeavesTheProcessOfALostConnectionAlone) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  EXPECT_TRUE(d.Noted("member 1 is lost: its connection ended"));
  EXPECT_FALSE(d.Last<EndProcess>().has_value());
}

TEST_F(LeaderTest, EndsTheProcessOfASilentMember) {
  d.silent = {1};
  d.Pass(LeaderOptions{}.silence + seconds(1));
  EXPECT_TRUE(d.Noted("member 1 is lost: it was silent"));
  ASSERT_TRUE(d.Last<EndProcess>().has_value());
  EXPECT_EQ(d.Last<EndProcess>()->member, 1u);
}

TEST_F(LeaderTest, RestoresFromOneReplicaWithoutShardedState) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  d.leader.OnDisconnect(d.now, 2, &d.out);
  d.Store();  // of the loss of one member
  d.Store();  // of both losses
  d.Prepare({0}, 0);
  d.Say(0, AtBoundary{d.Sent<Prepare>(0).value().epoch, 8, true, {}, {}, {{{0, 1, 2}, {}, {}}}});
  EXPECT_EQ(d.Sent<Restore>(0).value().version, 8u);
  EXPECT_THAT(d.Sent<Restore>(0).value().sources.live, ElementsAre(0));
}

// ---- drains with a deadline ---------------------------------------------------------------------

TEST_F(LeaderTest, LosesHangingDrainedMemberAtDeadline) {
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
  EXPECT_TRUE(d.Noted("it did not leave in time: drain 1 within 3000 ms"));
  d.Store();
  d.Recover({0, 2});
  EXPECT_TRUE(d.leader.steady());
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kDone);
}

TEST_F(LeaderTest, DrainDeadlineWaitsForRecoveryFromLoss) {
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
  // The new world has no copies yet.
  d.Pass(LeaderOptions{}.silence - milliseconds(100));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(2));
  d.Pass(milliseconds(500));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(1));
}

TEST_F(LeaderTest, DrainDeadlineWaitsForCopiesAfterAChangeOfMembers) {
  d.Ask({RequestKind::kDrain, 0, {0}, {}, ""});
  d.Store();
  d.Prepare(kThree, 1);
  d.PledgeAll(kThree);
  d.Ask({RequestKind::kDrain, 0, {1}, milliseconds(500), ""});
  d.BoundaryAll(kThree);
  d.VerifyAll(kThree);
  d.Pass(milliseconds(300));
  d.Store();
  ASSERT_TRUE(d.Sent<Commit>(2).has_value());
  d.Pass(LeaderOptions{}.silence - milliseconds(100));
  EXPECT_FALSE(d.Sent<Lost>(2).has_value());
  d.Pass(milliseconds(500));
  EXPECT_THAT(d.Sent<Lost>(2).value().members, ElementsAre(1));
}

// ---- reclaim notices ----------------------------------------------------------------------------

TEST_F(LeaderTest, StopsJobWhenEveryMemberHasReclaimNotice) {
  for (MemberId m : {0u, 1u}) d.Say(m, ReclaimNotice{60000});
  EXPECT_FALSE(d.Last<EndJob>().has_value());
  d.Say(2, ReclaimNotice{60000});
  EXPECT_THAT(d.Last<EndJob>().value().reason,
              HasSubstr("every member of the world has a reclaim"));
  for (MemberId m : kThree) EXPECT_TRUE(d.Sent<Stop>(m).has_value()) << m;
  EXPECT_EQ(d.leader.phase(), Phase::kStopped);
}

TEST_F(LeaderTest, StopsJobWhenOnlyReclaimedMembersSurviveLoss) {
  for (MemberId m : {0u, 1u}) d.Say(m, ReclaimNotice{60000});
  d.leader.OnDisconnect(d.now, 2, &d.out);
  EXPECT_THAT(d.Last<EndJob>().value().reason,
              HasSubstr("every member of the world has a reclaim"));
}

TEST_F(LeaderTest, JoinerReplacesOnlyReclaimedMember) {
  LeaderDriver one(LeaderDriver::Options(1));
  one.Form(1);
  one.Ask({RequestKind::kReplace, 0, {0}, {}, ""});
  one.Store();
  one.Say(0, ReclaimNotice{60000});
  EXPECT_FALSE(one.Last<EndJob>().has_value());
  one.leader.OnSpawnFailed(one.now, std::vector<MemberId>{1}, "exit status 127", &one.out);
  EXPECT_TRUE(one.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, ReclaimNoticeAfterStallHasFullTime) {
  d.now += seconds(600);
  d.Say(2, ReclaimNotice{5000});
  d.Pass(milliseconds(4500));
  EXPECT_FALSE(d.Noted("member 2 is lost"));
  d.Pass(seconds(1));
  EXPECT_TRUE(d.Noted("member 2 is lost: it did not leave in time"));
  EXPECT_THAT(d.leader.loss(), HasSubstr("member 2 is lost: it did not leave in time"));
}

// ---- deaths and ends at other times
// ----------------------------------------------------------------

TEST_F(LeaderTest, LossAbortsChangeAndKeepsItsRequest) {
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

TEST_F(LeaderTest, AbortEndsJoinersAndNotTheJob) {
  d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  d.Connect(3);
  ASSERT_TRUE(d.Sent<Welcome>(3).has_value());
  d.Ask({RequestKind::kDrain, 0, {1}, seconds(60), ""});
  EXPECT_THAT(d.Sent<Refused>(3).value().reason, HasSubstr("a drain with a deadline goes first"));
  EXPECT_EQ(d.Last<EndProcess>()->member, 3u);
  for (MemberId m = 0; m < 4; ++m) EXPECT_FALSE(d.Sent<Stop>(m).has_value()) << m;
  EXPECT_FALSE(d.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, StopsJobWithoutMembers) {
  for (MemberId m : kThree) d.leader.OnDisconnect(d.now, m, &d.out);
  EXPECT_THAT(d.Last<EndJob>().value().reason, HasSubstr("every member"));
  EXPECT_EQ(d.leader.phase(), Phase::kStopped);
}

TEST_F(LeaderTest, SecondLossRestartsTransition) {
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

TEST_F(LeaderTest, LossDuringCommitWaitsForStore) {
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

TEST_F(LeaderTest, ReportsLossToUnmodifiedProgramOnly) {
  LeaderDriver plain(LeaderDriver::Options(2));
  plain.Form(2, false);
  plain.leader.OnDisconnect(plain.now, 1, &plain.out);
  EXPECT_THAT(plain.Sent<Lost>(0).value().members, ElementsAre(1));
  EXPECT_FALSE(plain.Store());
  EXPECT_THAT(plain.AskInVain({RequestKind::kRebuild, 0, {}, {}, ""}),
              HasSubstr("cannot continue"));
}

TEST_F(LeaderTest, StopsJobWhenInitialMemberEndsBeforeFirstWorld) {
  LeaderDriver forming(LeaderDriver::Options(3));
  forming.Connect(0, false);
  forming.leader.OnFailedExit(forming.now, 2, "was killed by signal 9", &forming.out);
  EXPECT_THAT(forming.Sent<Refused>(0).value().reason,
              HasSubstr("member 2 was killed by signal 9 before all initial members"));
  EXPECT_THAT(forming.Last<EndJob>().value().reason, HasSubstr("member 2"));
  // The last member comes too late.
  forming.Connect(1, false);
  EXPECT_TRUE(forming.Sent<Refused>(1).has_value());
  EXPECT_EQ(forming.leader.phase(), Phase::kStopped);
}

TEST_F(LeaderTest, StopsJobWhenAnInitialMemberEndsWellAndOthersWaitForIt) {
  for (const bool ends_first : {true, false}) {
    LeaderDriver forming(LeaderDriver::Options(2));
    if (ends_first) forming.leader.OnEndBeforeWorld(forming.now, 1, &forming.out);
    EXPECT_FALSE(forming.Last<EndJob>().has_value());
    forming.Connect(0);
    if (!ends_first) {
      EXPECT_EQ(forming.Sent<Forming>(0).value().missing, 1u);
      forming.leader.OnEndBeforeWorld(forming.now, 1, &forming.out);
    }
    EXPECT_THAT(forming.Last<EndJob>().value().reason,
                HasSubstr("member 1 ended with status 0 before all initial members"));
    EXPECT_TRUE(forming.Sent<Refused>(0).has_value());
  }
}

// Its other members may have no communicator with it.
TEST_F(LeaderTest, AnUnmodifiedJobGoesOnWithoutAnInitialMember) {
  LeaderDriver forming(LeaderDriver::Options(2));
  forming.Connect(0, false);
  forming.leader.OnEndBeforeWorld(forming.now, 1, &forming.out);
  EXPECT_FALSE(forming.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, StopsJobWhenInitialMemberIsSilentBeforeFirstWorld) {
  LeaderDriver forming(LeaderDriver::Options(3));
  forming.Connect(0, false);
  forming.Connect(1, false);
  forming.silent = {1};
  forming.Pass(milliseconds(3500));
  EXPECT_THAT(forming.Sent<Refused>(0).value().reason,
              HasSubstr("member 1 was silent for REWIRE_SILENCE_MS"));
  EXPECT_EQ(forming.leader.phase(), Phase::kStopped);
}

TEST_F(LeaderTest, FailedExitWhileFirstWorldIsWrittenIsLoss) {
  LeaderDriver forming(LeaderDriver::Options(2));
  forming.Connect(0, false);
  forming.Connect(1, false);
  forming.leader.OnDisconnect(forming.now, 1, &forming.out);
  forming.leader.OnFailedExit(forming.now, 1, "was killed by signal 9", &forming.out);
  EXPECT_FALSE(forming.Sent<Refused>(0).has_value());
  forming.Store();
  EXPECT_THAT(forming.Sent<Lost>(0).value().members, ElementsAre(1));
}

TEST_F(LeaderTest, FinishedMemberIsNotLost) {
  for (MemberId m : kThree) {
    d.Say(m, Finished{});
    d.leader.OnDisconnect(d.now, m, &d.out);
  }
  EXPECT_TRUE(d.leader.done());
  EXPECT_FALSE(d.Sent<Lost>(2).has_value());
}

TEST_F(LeaderTest, LosesMemberThatFailsAfterDetach) {
  d.Say(1, Finished{});
  d.leader.OnDisconnect(d.now, 1, &d.out);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  d.leader.OnFailedExit(d.now, 1, "exited with status 1", &d.out);
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(1));
  EXPECT_TRUE(d.Noted("it had detached, and exited with status 1"));
  // The other members continue without it.
  d.Store();
  EXPECT_EQ(d.Sent<Prepare>(0).value().kind, TransitionKind::kLoss);
}

TEST_F(LeaderTest, IgnoresFailedExitAfterJobOrWithoutDetach) {
  // Its disconnect reports the loss.
  d.leader.OnFailedExit(d.now, 1, "exited with status 1", &d.out);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  for (MemberId m : kThree) d.Say(m, Finished{});
  d.leader.OnFailedExit(d.now, 1, "exited with status 1", &d.out);
  EXPECT_TRUE(d.leader.done());
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
}

TEST_F(LeaderTest, SaysThatOthersGoOnWithoutAMemberThatDetached) {
  d.Say(1, Finished{});
  d.leader.OnDisconnect(d.now, 1, &d.out);
  d.Pass(LeaderOptions{}.silence - milliseconds(500));
  EXPECT_FALSE(d.Noted("member 1 has detached"));
  d.Pass(seconds(1));
  EXPECT_TRUE(d.Noted("member 1 has detached, and others have gone on for REWIRE_SILENCE_MS"));
  EXPECT_FALSE(d.Sent<Lost>(0).has_value()) << "a detached member is not lost";
}

class UnmodifiedEndTest : public testing::Test {
 protected:
  UnmodifiedEndTest() { d.Form(2, false); }
  void End(MemberId m) {
    d.Say(m, Finished{});
    d.leader.OnDisconnect(d.now, m, &d.out);
  }
  LeaderDriver d{LeaderDriver::Options(2)};
};

TEST_F(UnmodifiedEndTest, ProgramsThatEndWithCommunicatorsAreNotLost) {
  End(0);
  d.Pass(milliseconds(800));
  End(1);
  EXPECT_TRUE(d.leader.done());
  EXPECT_FALSE(d.Sent<Lost>(1).has_value());
}

TEST_F(UnmodifiedEndTest, OthersThatGoOnLoseTheMember) {
  End(0);
  d.Pass(LeaderOptions{}.silence - milliseconds(500));
  EXPECT_FALSE(d.Sent<Lost>(1).has_value());
  d.Pass(seconds(1));
  EXPECT_THAT(d.Sent<Lost>(1).value().members, ElementsAre(0));
  EXPECT_TRUE(d.Noted("its program ended with status 0, and others went on"));
}

TEST_F(UnmodifiedEndTest, OthersThatAreSilentDoNotGoOn) {
  End(0);
  d.silent = {1};
  d.Pass(seconds(20));
  d.silent.clear();
  d.Pass(milliseconds(800));
  End(1);
  EXPECT_TRUE(d.leader.done());
  EXPECT_FALSE(d.Sent<Lost>(1).has_value());
}

TEST_F(UnmodifiedEndTest, CommunicatorsThatExitHandlersDestroyAreNotAwaited) {
  d.Say(0, Finished{});
  d.Say(0, CommunicatorDestroyed{kComm});
  d.leader.OnDisconnect(d.now, 0, &d.out);
  d.Pass(seconds(20));
  EXPECT_FALSE(d.Sent<Lost>(1).has_value());
}

TEST_F(UnmodifiedEndTest, AMemberMayEndBeforeTheOthersKnowANewLeader) {
  const WorldRecord record = d.leader.record();
  LeaderDriver next(LeaderDriver::Options(2), record);
  next.Connect(0, false, record.world.epoch);
  next.Say(0, CommunicatorCreated{kComm, 2, {0}, false, ""});
  next.Say(0, Finished{});
  next.leader.OnDisconnect(next.now, 0, &next.out);
  EXPECT_FALSE(next.Noted("the job is stopped"));
  next.Connect(1, false, record.world.epoch);
  EXPECT_FALSE(next.Sent<Refused>(1).has_value());
  next.Say(1, CommunicatorCreated{kComm, 2, {1}, false, ""});
  next.Say(1, Finished{});
  EXPECT_TRUE(next.leader.done());
}

TEST_F(UnmodifiedEndTest, AFailureAfterTheAnnouncedEndIsALoss) {
  End(0);
  d.leader.OnFailedExit(d.now, 0, "was killed by signal 11 (Segmentation fault)", &d.out);
  EXPECT_THAT(d.Sent<Lost>(1).value().members, ElementsAre(0));
  EXPECT_TRUE(d.Noted("it had begun to end with status 0, and was killed by signal 11"));
  d.Pass(seconds(10));
  EXPECT_FALSE(d.Noted("others went on"));
}

// The other members may be inside the creation of the next communicator.
TEST_F(LeaderTest, LosesUnmodifiedProgramThatFailsWithoutCommunicators) {
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

}  // namespace
}  // namespace rewire::elastic
