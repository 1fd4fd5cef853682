#include "reconfig/transition/leader.h"

#include <gmock/gmock.h>

#include "tests/unit/transition/leader_driver.h"

namespace rewire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<MemberId> kThree{0, 1, 2};

std::vector<MemberId> Ids(const World& world) {
  std::vector<MemberId> ids;
  for (const WorldMember& m : world.members) ids.push_back(m.member);
  return ids;
}

class LeaderTest : public testing::Test {
 protected:
  LeaderTest() : d(LeaderDriver::Options(3)) { d.Form(3); }
  LeaderDriver d;
};

TEST_F(LeaderTest, AWorldIsFormedWhenAllAreThere) {
  LeaderDriver fresh(LeaderDriver::Options(2));
  fresh.Connect(0);
  EXPECT_FALSE(fresh.Store());
  EXPECT_THAT(fresh.AskInVain({RequestKind::kResize, 1, {}, {}, ""}), HasSubstr("not formed yet"));
  fresh.Connect(1);
  EXPECT_FALSE(fresh.Sent<Welcome>(0).has_value());  // not before the store has it
  EXPECT_TRUE(fresh.Store());
  EXPECT_THAT(Ids(fresh.Sent<Welcome>(0)->world), ElementsAre(0, 1));
  EXPECT_EQ(fresh.Sent<Commit>(1)->record, fresh.leader.record());
  EXPECT_EQ(fresh.leader.record().next_member, 2u);
}

TEST_F(LeaderTest, RequestsThatMakeNoSense) {
  EXPECT_THAT(d.AskInVain({RequestKind::kResize, 0, {}, {}, ""}), HasSubstr("0 members"));
  EXPECT_THAT(d.AskInVain({RequestKind::kResize, 7, {}, {}, ""}), HasSubstr("at most 6"));
  EXPECT_THAT(d.AskInVain({RequestKind::kDrain, 0, {9}, {}, ""}), HasSubstr("member 9"));
  EXPECT_THAT(d.AskInVain({RequestKind::kDrain, 0, kThree, {}, ""}), HasSubstr("leave nobody"));
  EXPECT_THAT(d.AskInVain({RequestKind::kReplace, 0, {9}, {}, ""}), HasSubstr("member 9"));
  EXPECT_EQ(d.leader.StatusOf(77).state, RequestState::kUnknown);
}

TEST_F(LeaderTest, AnUnmodifiedProgramCanBeRebuiltOnly) {
  LeaderDriver plain(LeaderDriver::Options(2));
  plain.Form(2, false);
  EXPECT_THAT(plain.AskInVain({RequestKind::kResize, 1, {}, {}, ""}), HasSubstr("C API"));
  EXPECT_THAT(plain.AskInVain({RequestKind::kDrain, 0, {1}, {}, ""}), HasSubstr("member 0 runs"));
  plain.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
}

TEST_F(LeaderTest, ACommunicatorThatDoesNotSpanTheWorldIsNamed) {
  d.Say(1, CommunicatorCreated{{0xbbbbbbbb00000000, 1}, 2, 0, false, ""});
  EXPECT_THAT(d.AskInVain({RequestKind::kResize, 2, {}, {}, ""}), HasSubstr("bbbbbbbb"));
  d.Say(1, CommunicatorDestroyed{{0xbbbbbbbb00000000, 1}});
  d.Say(2, CommunicatorCreated{kComm, 3, 2, true, "a live CUDA graph"});
  EXPECT_THAT(d.AskInVain({RequestKind::kRebuild, 0, {}, {}, ""}), HasSubstr("a live CUDA graph"));
}

// ---- a swap -------------------------------------------------------------------------------------

TEST_F(LeaderTest, ASwapCommitsItsCuts) {
  const uint64_t id = d.Ask({RequestKind::kRebuild, 0, {}, {}, "sick"});
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);
  ASSERT_TRUE(d.Store());  // the epoch is reserved first
  EXPECT_EQ(d.leader.record().reserved_epoch, 2u);
  EXPECT_THAT(d.Sent<Prepare>(0)->mint, ElementsAre(kComm));
  EXPECT_TRUE(d.Sent<Prepare>(1)->mint.empty());
  d.Prepare(kThree, 0);
  EXPECT_EQ(d.Sent<Build>(2)->builds[0].rank, 2u);
  const auto propose = d.Sent<Propose>(1);
  ASSERT_TRUE(propose.has_value());
  EXPECT_EQ(propose->cuts[0].warm, 102u + 16u);
  EXPECT_GT(propose->cuts[0].cut, propose->cuts[0].warm);
  d.PledgeAll({0, 1});
  EXPECT_EQ(d.leader.phase(), Phase::kPropose);
  d.PledgeAll({2});
  EXPECT_EQ(d.leader.phase(), Phase::kCommitting);
  EXPECT_FALSE(d.Sent<Decide>(0).has_value());  // not before the store has answered
  ASSERT_TRUE(d.Store());
  EXPECT_TRUE(d.Sent<Decide>(0)->go);
  EXPECT_EQ(d.leader.record().cuts, propose->cuts);
  EXPECT_EQ(d.leader.record().world.epoch, 2u);
  d.Finish(kThree);
  EXPECT_TRUE(d.leader.steady());
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kDone);
}

TEST_F(LeaderTest, TheMarginOfACutFollowsTheRate) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Say(0, Minted{2, kComm, UniqueIdBytes(128, 'u')});
  const auto look = d.Sent<Propose>(1);  // with the build: only the counters are asked for
  ASSERT_TRUE(look.has_value());
  EXPECT_EQ(look->round, kLookRound);
  EXPECT_TRUE(look->cuts.empty());
  const uint64_t dropped = d.leader.dropped_messages();
  for (MemberId m : kThree) d.Say(m, Pledge{2, look->round, true, {{kComm, 1000}}});
  EXPECT_EQ(d.leader.dropped_messages(), dropped);
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
  d.Pass(milliseconds(100));
  for (MemberId m : kThree) d.Say(m, Prepared{2, true, "", 0, {{kComm, 2000 + m}}});
  const auto propose = d.Sent<Propose>(1);
  ASSERT_EQ(propose->cuts.size(), 1u);
  EXPECT_NE(propose->round, look->round);
  // 10000 a second: at least what is issued while a thread does not run, twice over.
  EXPECT_GE(propose->cuts[0].warm, 2002u + 500);
  EXPECT_LE(propose->cuts[0].warm, 2002u + 600);
  // A late answer to the look is no pledge.
  for (MemberId m : kThree) d.Say(m, Pledge{2, look->round, true, {}});
  EXPECT_EQ(d.leader.phase(), Phase::kPropose);
  for (MemberId m : kThree) d.Say(m, Pledge{2, propose->round, true, {}});
  EXPECT_EQ(d.leader.phase(), Phase::kCommitting);
}

TEST_F(LeaderTest, ASlowStoreMovesTheCutAway) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Pass(milliseconds(75));
  d.Store();
  d.Say(0, Minted{2, kComm, UniqueIdBytes(128, 'u')});
  const uint32_t look = d.Sent<Propose>(0)->round;
  for (MemberId m : kThree) d.Say(m, Pledge{2, look, true, {{kComm, 0}}});
  d.Pass(milliseconds(100));
  for (MemberId m : kThree) d.Say(m, Prepared{2, true, "", 0, {{kComm, 1000}}});
  EXPECT_EQ(d.Sent<Propose>(0)->cuts[0].warm, 1000u + 2 * 1000);
}

TEST_F(LeaderTest, ARefusedRoundDoublesTheMarginAndRoundsAreBounded) {
  const uint64_t id = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Prepare(kThree, 0);
  uint64_t margin = 16;
  for (uint32_t round = 0; round < 8; ++round) {
    ASSERT_EQ(d.Sent<Propose>(0)->round, round);
    EXPECT_GE(d.Sent<Propose>(0)->cuts[0].warm, 102 + margin);
    d.Say(0, Pledge{2, round, true, {}});
    d.Say(1, Pledge{2, round, false, {{kComm, 102}}});
    EXPECT_FALSE(d.Sent<Decide>(0)->go);
    margin *= 2;
  }
  EXPECT_EQ(d.leader.refused_rounds(), 8u);
  EXPECT_TRUE(d.Sent<Abort>(2).has_value());
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kFailed);
  EXPECT_THAT(d.leader.StatusOf(id).text, HasSubstr("8 rounds"));
  EXPECT_EQ(d.leader.record().world.epoch, 1u);
}

TEST_F(LeaderTest, ALatePledgeOfAnEarlierRoundDoesNotCount) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Prepare(kThree, 0);
  d.Say(1, Pledge{2, 0, false, {}});
  const uint64_t dropped = d.leader.dropped_messages();
  d.PledgeAll({0, 2}, 0);
  EXPECT_EQ(d.leader.dropped_messages(), dropped + 2);
  d.PledgeAll({1}, 1);
  EXPECT_EQ(d.leader.phase(), Phase::kPropose);
}

TEST_F(LeaderTest, AnotherEpochsMessagesAreDroppedAndCounted) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Say(0, Prepared{1, false, "late", 0, {}});
  d.Say(0, Minted{9, kComm, "x"});
  d.Say(0, Verified{1, true, "", 0, 0});
  EXPECT_EQ(d.leader.dropped_messages(), 3u);
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
}

TEST_F(LeaderTest, ACommunicatorMadeMeanwhilePreparesAnew) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  const CommunicatorId other{0xcccccccc00000000, 1};
  d.Say(0, CommunicatorCreated{other, 3, 0, false, ""});
  EXPECT_EQ(d.Sent<Abort>(1)->epoch, 2u);
  d.Store();
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);  // until all its ranks are there
  d.Say(1, CommunicatorCreated{other, 3, 1, false, ""});
  d.Say(2, CommunicatorCreated{other, 3, 2, false, ""});
  EXPECT_EQ(d.Sent<Prepare>(0)->epoch, 3u);
  EXPECT_THAT(d.Sent<Prepare>(0)->mint, ElementsAre(kComm, other));
}

TEST_F(LeaderTest, AFailedBuildAndALateOneAbort) {
  const uint64_t failed = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Say(1, Prepared{2, false, "no memory", 0, {}});
  EXPECT_THAT(d.leader.StatusOf(failed).text, HasSubstr("member 1 cannot prepare: no memory"));
  EXPECT_THAT(d.Sent<Abort>(0)->reason, HasSubstr("no memory"));
  const uint64_t late = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Pass(seconds(61));
  EXPECT_THAT(d.leader.StatusOf(late).text, HasSubstr("not prepared in time: member 0, 1, 2"));
  EXPECT_TRUE(d.leader.steady());
}

// ---- a change of members ------------------------------------------------------------------------

TEST_F(LeaderTest, GrowingWaitsForTheJoiner) {
  const uint64_t id = d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  EXPECT_FALSE(d.Last<Spawn>().has_value());  // its id is reserved first
  d.Store();
  EXPECT_EQ(d.leader.record().next_member, 4u);
  EXPECT_THAT(d.Last<Spawn>()->members, ElementsAre(3));
  EXPECT_EQ(d.Last<Spawn>()->slots, 4u);
  EXPECT_THAT(d.Last<Spawn>()->stay, ElementsAre(0, 1, 2));
  d.Connect(3);
  EXPECT_TRUE(d.Sent<Welcome>(3)->joining);
  EXPECT_THAT(Ids(d.Sent<Welcome>(3)->world), ElementsAre(0, 1, 3, 2));
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);  // it has no communicators yet
  d.Say(3, CommunicatorCreated{kComm, 4, 2, false, ""});
  const std::vector<MemberId> all{0, 1, 2, 3};
  d.Prepare(all, 0);
  EXPECT_EQ(d.Sent<Build>(3)->builds[0].ranks, 4u);
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);  // its program is not in its first update
  d.BoundaryAll({3});
  ASSERT_EQ(d.leader.phase(), Phase::kPropose);
  EXPECT_FALSE(d.Sent<Propose>(3).has_value());
  EXPECT_EQ(d.Sent<Propose>(0)->cuts[0].communicator, kUpdateBoundary);
  EXPECT_EQ(d.Sent<Propose>(0)->cuts[0].cut, 9u);
  d.PledgeAll(kThree);
  EXPECT_TRUE(d.Sent<Decide>(3)->go);
  EXPECT_EQ(d.leader.phase(), Phase::kArmed);
  d.BoundaryAll(kThree);
  EXPECT_EQ(d.leader.phase(), Phase::kAtBoundary);
  d.VerifyAll({0, 1, 2});
  EXPECT_EQ(d.leader.phase(), Phase::kAtBoundary);
  d.VerifyAll({3});
  d.Store();
  EXPECT_THAT(Ids(d.Sent<Commit>(3)->record.world), ElementsAre(0, 1, 3, 2));
  d.Finish(all);
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kDone);
  // And the registry has moved on with it: a second change is possible.
  d.Ask({RequestKind::kResize, 2, {}, {}, ""});
}

TEST_F(LeaderTest, ADrainedMemberVerifiesAndLeaves) {
  d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
  d.Store();
  d.Prepare(kThree, 0);
  EXPECT_TRUE(d.Sent<Build>(1)->builds.empty());
  EXPECT_EQ(d.Sent<Build>(2)->builds[0].rank, 1u);
  d.PledgeAll(kThree);
  d.BoundaryAll(kThree);
  d.VerifyAll(kThree);
  d.Store();
  EXPECT_FALSE(d.Sent<Commit>(1)->record.world.SlotOf(1).has_value());
  d.leader.OnDisconnect(d.now, 1, &d.out);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  d.Finish({0, 2});
  EXPECT_TRUE(d.leader.steady());
}

TEST_F(LeaderTest, ADrainedMemberStaysUntilTheOldGenerationsAreRetired) {
  d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
  d.Store();
  d.Prepare(kThree, 0);
  d.PledgeAll(kThree);
  d.BoundaryAll(kThree);
  d.VerifyAll(kThree);
  d.Store();
  EXPECT_FALSE(d.Last<Kick>().has_value());
  d.Finish({0, 2});
  ASSERT_TRUE(d.Last<Kick>().has_value());
  EXPECT_EQ(d.Last<Kick>()->member, 1u);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
}

TEST_F(LeaderTest, PlansThatDifferAbort) {
  const uint64_t id = d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
  d.Store();
  d.Say(0, Prepared{2, true, "", 5, {}});
  d.Say(1, Prepared{2, true, "", 6, {}});
  EXPECT_THAT(d.leader.StatusOf(id).text, HasSubstr("the plan of member 1 differs"));
}

TEST_F(LeaderTest, AFailedCheckAbortsAndTheOldWorldGoesOn) {
  const uint64_t id = d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
  d.Store();
  d.Prepare(kThree, 0);
  d.PledgeAll(kThree);
  d.BoundaryAll(kThree);
  d.Say(2, Verified{2, false, "hash of w3 differs", 0, 0});
  EXPECT_THAT(d.leader.StatusOf(id).text, HasSubstr("hash of w3 differs"));
  EXPECT_TRUE(d.Sent<Abort>(0).has_value());
  EXPECT_EQ(d.leader.record().world.epoch, 1u);
}

TEST_F(LeaderTest, AJoinerThatDoesNotStartOrDiesEndsTheRequest) {
  const uint64_t first = d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  d.leader.OnSpawnFailed(d.now, std::vector<MemberId>{3}, "exit status 127", &d.out);
  EXPECT_THAT(d.leader.StatusOf(first).text, HasSubstr("exit status 127"));
  const uint64_t second = d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  EXPECT_THAT(d.Last<Spawn>()->members, ElementsAre(4));  // an id is never used again
  d.Connect(4);
  d.leader.OnDisconnect(d.now, 4, &d.out);
  EXPECT_EQ(d.leader.StatusOf(second).state, RequestState::kFailed);
  EXPECT_EQ(d.Last<EndProcess>()->member, 4u);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
}

TEST_F(LeaderTest, RequestsDuringATransitionAreMergedIntoTheNext) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  const uint64_t a = d.Ask({RequestKind::kDrain, 0, {0}, {}, ""});
  const uint64_t b = d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  EXPECT_EQ(d.leader.StatusOf(a).state, RequestState::kWaiting);
  d.Store();
  d.Prepare(kThree, 0);
  d.PledgeAll(kThree);
  d.Store();
  d.Finish(kThree);
  EXPECT_EQ(d.leader.StatusOf(a).state, RequestState::kRunning);
  EXPECT_EQ(d.leader.StatusOf(b).state, RequestState::kRunning);
  d.Store();
  EXPECT_THAT(d.Last<Spawn>()->members, ElementsAre(3, 4));
}

TEST_F(LeaderTest, ADrainWithADeadlineGoesFirst) {
  const uint64_t grow = d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  d.Say(2, ReclaimNotice{5000});
  EXPECT_EQ(d.leader.StatusOf(grow).state, RequestState::kWaiting);
  EXPECT_EQ(d.Last<EndProcess>()->member, 3u);
  d.Store();
  EXPECT_THAT(Ids(d.Sent<Prepare>(0)->to), ElementsAre(0, 1));
}

TEST_F(LeaderTest, ADeadlineThatCannotBeMetIsSaidAtOnce) {
  d.Ask({RequestKind::kDrain, 0, {2}, {}, ""});
  d.Store();
  d.Pass(seconds(20));  // this change takes long
  d.Prepare(kThree, 0);
  d.PledgeAll(kThree);
  d.BoundaryAll(kThree);
  d.VerifyAll(kThree);
  d.Store();
  d.Finish({0, 1});
  d.out.clear();
  d.Ask({RequestKind::kDrain, 0, {1}, seconds(2), ""});
  EXPECT_TRUE(d.Noted("the deadline cannot be met"));
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);  // begun all the same
}

// ---- losses -------------------------------------------------------------------------------------

TEST_F(LeaderTest, ADeathIsToldAtOnceAndHealed) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  EXPECT_THAT(d.Sent<Lost>(0)->members, ElementsAre(1));
  EXPECT_FALSE(d.Sent<Lost>(1).has_value());
  d.Store();
  EXPECT_EQ(d.Sent<Prepare>(0)->kind, TransitionKind::kLoss);
  d.Prepare({0, 2}, 0);
  EXPECT_EQ(d.leader.phase(), Phase::kArmed);
  d.BoundaryAll({0, 2});
  EXPECT_EQ(d.Sent<Restore>(2)->version, 8u);
  d.VerifyAll({0, 2});
  d.Store();
  EXPECT_THAT(Ids(d.Sent<Commit>(0)->record.world), ElementsAre(0, 2));
  d.Finish({0, 2});
  EXPECT_TRUE(d.leader.steady());
  d.Connect(1);
  EXPECT_THAT(d.Sent<Refused>(1)->reason, HasSubstr("lost"));
}

TEST_F(LeaderTest, SilenceIsALoss) {
  d.silent = {2};
  d.Pass(milliseconds(2500));
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  d.Pass(seconds(1));
  EXPECT_THAT(d.Sent<Lost>(0)->members, ElementsAre(2));
}

TEST_F(LeaderTest, AfterItStoodStillItselfNobodyIsSilent) {
  d.now += seconds(60);
  d.leader.OnTick(d.now, &d.out);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
}

TEST_F(LeaderTest, ADeathDuringAChangeAbortsItFirstAndTheRequestIsNotLost) {
  const uint64_t id = d.Ask({RequestKind::kReplace, 0, {1}, {}, ""});
  d.Store();
  d.leader.OnDisconnect(d.now, 1, &d.out);
  EXPECT_EQ(d.Last<EndProcess>()->member, 3u);
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kWaiting);
  d.Store();
  d.Prepare({0, 2}, 0);
  d.BoundaryAll({0, 2});
  d.VerifyAll({0, 2});
  d.Store();
  d.Finish({0, 2});
  d.Store();
  EXPECT_THAT(d.Last<Spawn>()->members, ElementsAre(4));  // the replacement is still due
  EXPECT_EQ(d.Last<Spawn>()->slots, 3u);
}

TEST_F(LeaderTest, ASecondDeathBeginsTheLossAnew) {
  d.leader.OnDisconnect(d.now, 1, &d.out);
  d.Store();
  d.Prepare({0, 2}, 0);
  d.leader.OnDisconnect(d.now, 2, &d.out);
  EXPECT_THAT(d.Sent<Lost>(0)->members, ElementsAre(1, 2));
  d.Store();
  EXPECT_EQ(d.Sent<Prepare>(0)->epoch, 3u);
  d.Prepare({0}, 0);
  d.Say(0, AtBoundary{3, 8, true, {8}, {8}});
  EXPECT_THAT(d.Sent<Stop>(0)->reason, HasSubstr("slot 1 (member 1)"));
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
  EXPECT_EQ(d.Sent<Lost>(1)->epoch, 2u);
}

TEST_F(LeaderTest, AnUnmodifiedProgramIsToldAndNotHealed) {
  LeaderDriver plain(LeaderDriver::Options(2));
  plain.Form(2, false);
  plain.leader.OnDisconnect(plain.now, 1, &plain.out);
  EXPECT_THAT(plain.Sent<Lost>(0)->members, ElementsAre(1));
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
  next.OnConnect(d.now, Hello{1, 0, 100, 1, true, "addr", false, 1}, &out);
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

TEST_F(LeaderTest, WhoDoesNotComeBackInTheGraceTimeIsLost) {
  WorldRecord record = d.leader.record();
  LeaderDriver next(LeaderDriver::Options(3), record);
  next.Connect(0, true, 1);
  next.Connect(2, true, 1);
  EXPECT_EQ(next.leader.phase(), Phase::kRecovering);
  next.Pass(seconds(11));
  EXPECT_THAT(next.Sent<Lost>(0)->members, ElementsAre(1));
}

TEST_F(LeaderTest, MembersThatWereToldOfALossAreHealedByTheNextLeader) {
  LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
  next.Connect(0, true, 1, true);
  next.Connect(1, true, 1);
  next.Connect(2, true, 1);
  EXPECT_TRUE(next.Sent<Lost>(1)->members.empty());  // all live, but all must abort and meet again
  next.Store();
  EXPECT_EQ(next.Sent<Prepare>(1)->kind, TransitionKind::kLoss);
}

TEST_F(LeaderTest, StrangersAreRefused) {
  d.leader.OnConnect(d.now, Hello{2, 0, 100, 1, true, "", false, 0}, &d.out);
  EXPECT_THAT(d.Sent<Refused>(0)->reason, HasSubstr("protocol 2"));
  d.Connect(9);
  EXPECT_THAT(d.Sent<Refused>(9)->reason, HasSubstr("not one of this job's"));
  d.leader.OnConnect(d.now, Hello{1, 1, 555, 1, true, "", false, 0}, &d.out);
  EXPECT_THAT(d.Sent<Refused>(1)->reason, HasSubstr("another process"));
}

}  // namespace
}  // namespace rewire
