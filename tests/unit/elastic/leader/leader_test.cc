// The leader forms a world, accepts requests and swaps communicators.
#include "reconfig/elastic/leader/leader.h"

#include <gmock/gmock.h>

#include "tests/unit/elastic/leader/leader_driver.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(LeaderTest, FormsWorldWhenAllMembersAreConnected) {
  LeaderDriver fresh(LeaderDriver::Options(2));
  fresh.Connect(0);
  EXPECT_FALSE(fresh.Store());
  EXPECT_THAT(fresh.AskInVain({RequestKind::kResize, 1, {}, {}, ""}), HasSubstr("not formed yet"));
  fresh.Connect(1);
  EXPECT_FALSE(fresh.Sent<Welcome>(0).has_value());  // not before the store has it
  EXPECT_TRUE(fresh.Store());
  EXPECT_THAT(Ids(fresh.Sent<Welcome>(0).value().world), ElementsAre(0, 1));
  EXPECT_EQ(fresh.Sent<Commit>(1).value().record, fresh.leader.record());
  EXPECT_EQ(fresh.leader.record().next_member, 2u);
}

TEST_F(LeaderTest, RejectsInvalidRequests) {
  EXPECT_THAT(d.AskInVain({RequestKind::kResize, 0, {}, {}, ""}), HasSubstr("0 members"));
  EXPECT_THAT(d.AskInVain({RequestKind::kResize, 7, {}, {}, ""}), HasSubstr("at most 6"));
  EXPECT_THAT(d.AskInVain({RequestKind::kDrain, 0, {9}, {}, ""}), HasSubstr("member 9"));
  EXPECT_THAT(d.AskInVain({RequestKind::kDrain, 0, kThree, {}, ""}),
              HasSubstr("at least one member"));
  EXPECT_THAT(d.AskInVain({RequestKind::kReplace, 0, {9}, {}, ""}), HasSubstr("member 9"));
  EXPECT_EQ(d.leader.StatusOf(77).state, RequestState::kUnknown);
}

TEST_F(LeaderTest, RebuildsButDoesNotChangeUnmodifiedProgram) {
  LeaderDriver plain(LeaderDriver::Options(2));
  plain.Form(2, false);
  EXPECT_THAT(plain.AskInVain({RequestKind::kResize, 1, {}, {}, ""}), HasSubstr("C API"));
  EXPECT_THAT(plain.AskInVain({RequestKind::kDrain, 0, {1}, {}, ""}), HasSubstr("member 0 runs"));
  plain.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
}

TEST_F(LeaderTest, NamesCommunicatorThatDoesNotSpanWorld) {
  d.Say(1, CommunicatorCreated{{0xbbbbbbbb00000000, 1}, 2, {0}, false, ""});
  EXPECT_THAT(d.AskInVain({RequestKind::kResize, 2, {}, {}, ""}), HasSubstr("bbbbbbbb"));
  d.Say(1, CommunicatorDestroyed{{0xbbbbbbbb00000000, 1}});
  d.Say(2, CommunicatorCreated{kComm, 3, {2}, true, "a live CUDA graph"});
  EXPECT_THAT(d.AskInVain({RequestKind::kRebuild, 0, {}, {}, ""}), HasSubstr("a live CUDA graph"));
}

// ---- a swap -------------------------------------------------------------------------------------

TEST_F(LeaderTest, SwapCommitsItsCuts) {
  const uint64_t id = d.Ask({RequestKind::kRebuild, 0, {}, {}, "sick"});
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);
  ASSERT_TRUE(d.Store());  // the epoch is reserved first
  EXPECT_EQ(d.leader.record().reserved_epoch, 2u);
  EXPECT_THAT(d.Sent<Prepare>(0).value().mint, ElementsAre(kComm));
  EXPECT_TRUE(d.Sent<Prepare>(1).value().mint.empty());
  d.Prepare(kThree, 0);
  EXPECT_THAT(d.Sent<Build>(2).value().builds[0].held, testing::ElementsAre(2u));
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
  EXPECT_TRUE(d.Sent<Decide>(0).value().go);
  EXPECT_EQ(d.leader.record().cuts, propose->cuts);
  EXPECT_EQ(d.leader.record().world.epoch, 2u);
  d.Finish(kThree);
  EXPECT_TRUE(d.leader.steady());
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kDone);
}

TEST_F(LeaderTest, MarginOfCutFollowsRate) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Say(0, Minted{2, kComm, UniqueIdBytes(128, 'u')});
  const auto look = d.Sent<Propose>(1);  // together with the build: it only asks for the counters
  ASSERT_TRUE(look.has_value());
  EXPECT_EQ(look->round, kLookRound);
  EXPECT_TRUE(look->cuts.empty());
  const uint64_t dropped = d.leader.dropped_messages();
  for (MemberId m : kThree) d.Say(m, Agreed(2, look->round, {{kComm, 1000}}));
  EXPECT_EQ(d.leader.dropped_messages(), dropped);
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
  d.Pass(milliseconds(100));
  for (MemberId m : kThree) d.Say(m, Prepared{2, true, "", 0, {{kComm, 2000 + m}}});
  const auto propose = d.Sent<Propose>(1);
  ASSERT_EQ(propose->cuts.size(), 2u);
  EXPECT_EQ(propose->cuts[1].communicator, kUpdateBoundary);
  EXPECT_NE(propose->round, look->round);
  // At 10000 operations a second: at least twice the operations issued while a thread does not run.
  EXPECT_GE(propose->cuts[0].warm, 2002u + 500);
  EXPECT_LE(propose->cuts[0].warm, 2002u + 600);
  // A late answer to the counter query is no pledge.
  for (MemberId m : kThree) d.Say(m, Agreed(2, look->round));
  EXPECT_EQ(d.leader.phase(), Phase::kPropose);
  for (MemberId m : kThree) d.Say(m, Agreed(2, propose->round));
  EXPECT_EQ(d.leader.phase(), Phase::kCommitting);
}

TEST_F(LeaderTest, SlowStoreEnlargesMarginOfCut) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Pass(milliseconds(75));
  d.Store();
  d.Say(0, Minted{2, kComm, UniqueIdBytes(128, 'u')});
  const uint32_t look = d.Sent<Propose>(0).value().round;
  for (MemberId m : kThree) d.Say(m, Agreed(2, look, {{kComm, 0}}));
  d.Pass(milliseconds(100));
  for (MemberId m : kThree) d.Say(m, Prepared{2, true, "", 0, {{kComm, 1000}}});
  EXPECT_EQ(d.Sent<Propose>(0).value().cuts[0].warm, 1000u + 2 * 1000);
}

TEST_F(LeaderTest, RefusedRoundDoublesMarginUpToLimitOfRounds) {
  const uint64_t id = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Prepare(kThree, 0);
  uint64_t margin = 16;
  for (uint32_t round = 0; round < 8; ++round) {
    ASSERT_EQ(d.Sent<Propose>(0).value().round, round);
    EXPECT_GE(d.Sent<Propose>(0).value().cuts[0].warm, 102 + margin);
    d.Say(0, Agreed(2, round));
    d.Say(1, NotAgreed(2, round, kComm, "too far", {{kComm, 102}}));
    EXPECT_FALSE(d.Sent<Decide>(0).value().go);
    margin *= 2;
  }
  EXPECT_EQ(d.leader.refused_rounds(), 8u);
  EXPECT_TRUE(d.Sent<Abort>(2).has_value());
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kFailed);
  EXPECT_THAT(d.leader.StatusOf(id).text, HasSubstr("8 rounds"));
  EXPECT_EQ(d.leader.record().world.epoch, 1u);
}

TEST_F(LeaderTest, IgnoresPledgeOfEarlierRound) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Prepare(kThree, 0);
  d.Say(1, NotAgreed(2, 0, kComm, "too far"));
  const uint64_t dropped = d.leader.dropped_messages();
  d.PledgeAll({0, 2}, 0);
  EXPECT_EQ(d.leader.dropped_messages(), dropped + 2);
  d.PledgeAll({1}, 1);
  EXPECT_EQ(d.leader.phase(), Phase::kPropose);
}

TEST_F(LeaderTest, DropsAndCountsMessagesOfAnotherEpoch) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Say(0, Prepared{1, false, "late", 0, {}});
  d.Say(0, Minted{9, kComm, "x"});
  d.Say(0, Verified{1, true, "", 0, 0});
  EXPECT_EQ(d.leader.dropped_messages(), 3u);
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
}

TEST_F(LeaderTest, RestartsPreparationForNewCommunicator) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  const CommunicatorId other{0xcccccccc00000000, 1};
  d.Say(0, CommunicatorCreated{other, 3, {0}, false, ""});
  EXPECT_EQ(d.Sent<Abort>(1).value().epoch, 2u);
  d.Store();
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);  // waits until all its ranks are there
  d.Say(1, CommunicatorCreated{other, 3, {1}, false, ""});
  d.Say(2, CommunicatorCreated{other, 3, {2}, false, ""});
  EXPECT_EQ(d.Sent<Prepare>(0).value().epoch, 3u);
  EXPECT_THAT(d.Sent<Prepare>(0).value().mint, ElementsAre(kComm, other));
}

// All ranks of a new communicator are reported.
void MakeCommunicator(LeaderDriver* d, uint64_t number) {
  const CommunicatorId other{0xcccccccc00000000, number};
  for (const MemberId m : kThree) d->Say(m, CommunicatorCreated{other, 3, {m}, false, ""});
}

TEST_F(LeaderTest, WaitsLongerBeforeEachRestart) {
  const uint64_t request = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  uint64_t made = 0;
  const auto restart = [&] {
    d.Store();
    MakeCommunicator(&d, ++made);
    d.Store();
  };
  restart();
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare) << "one communicator is no series";
  Duration longest{};
  for (int i = 0; i < 15; ++i) {
    restart();
    ASSERT_EQ(d.leader.phase(), Phase::kReserve);
    EXPECT_THAT(d.leader.StatusOf(request).text, HasSubstr("one communicator after the other"));
    const Time begun = d.now;
    while (d.leader.phase() == Phase::kReserve) d.Pass(milliseconds(10));
    EXPECT_GE(d.now - begun, longest);
    longest = d.now - begun;
  }
  EXPECT_GE(longest, milliseconds(4000));
  restart();
  EXPECT_THAT(d.leader.StatusOf(request).text, HasSubstr("given up after 16 restarts"));
}

TEST_F(LeaderTest, DrainWithDeadlineIsNotGivenUpBefore) {
  const uint64_t request = d.Ask({RequestKind::kDrain, 0, {2}, seconds(120), ""});
  const Time begun = d.now;
  for (uint64_t made = 1; d.now - begun < seconds(110); ++made) {
    d.Store();
    MakeCommunicator(&d, made);
    d.Store();
    while (d.leader.phase() == Phase::kReserve) d.Pass(milliseconds(100));
    ASSERT_EQ(d.leader.StatusOf(request).state, RequestState::kRunning);
  }
  d.Pass(seconds(12));
  EXPECT_TRUE(d.Noted("it did not leave in time"));
}

TEST_F(LeaderTest, AWaitingDrainDoesNotRepeatTheRecoveryOfALossForEver) {
  d.Ask({RequestKind::kDrain, 0, {1}, seconds(3600), ""});
  d.Store();
  d.leader.OnDisconnect(d.now, 2, &d.out);  // the drain waits for the recovery
  for (uint64_t made = 1; made <= 100 && d.leader.phase() != Phase::kStopped; ++made) {
    d.Store();
    const CommunicatorId other{0xcccccccc00000000, made};
    for (const MemberId m : {0u, 1u}) d.Say(m, CommunicatorCreated{other, 2, {0}, false, ""});
  }
  EXPECT_EQ(d.leader.phase(), Phase::kStopped);
}

TEST_F(LeaderTest, APauseLeavesTimeBeforeADeadline) {
  d.Ask({RequestKind::kDrain, 0, {2}, seconds(8), ""});
  const Time due = d.now + seconds(8);
  for (uint64_t made = 1; made <= 8; ++made) {
    d.Store();
    MakeCommunicator(&d, made);
    d.Store();
    const Duration left = due - d.now;
    while (d.leader.phase() == Phase::kReserve) d.Pass(milliseconds(1));
    EXPECT_LE(d.now, due - left * 3 / 4 + milliseconds(1));
  }
}

TEST_F(LeaderTest, AbortsOnFailedAndLateBuild) {
  const uint64_t failed = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Say(1, Prepared{2, false, "no memory", 0, {}});
  EXPECT_THAT(d.leader.StatusOf(failed).text, HasSubstr("member 1 cannot prepare: no memory"));
  EXPECT_THAT(d.Sent<Abort>(0).value().reason, HasSubstr("no memory"));
  const uint64_t late = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Pass(seconds(61));
  EXPECT_THAT(d.leader.StatusOf(late).text, HasSubstr("not prepared in time: member 0, 1, 2"));
  EXPECT_TRUE(d.leader.steady());
}

TEST_F(LeaderTest, RepeatsBuildThatNcclFailedTwice) {
  const uint64_t request = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  for (const Epoch epoch : {2, 3, 4}) {
    d.Store();
    EXPECT_EQ(d.leader.StatusOf(request).state, RequestState::kRunning);
    d.Say(1, Prepared{epoch, false, "ncclResult 6", 0, {}, true});
    EXPECT_EQ(d.Sent<Abort>(0).value().epoch, epoch);
  }
  EXPECT_EQ(d.leader.StatusOf(request).state, RequestState::kFailed);
  EXPECT_THAT(d.leader.StatusOf(request).text, HasSubstr("ncclResult 6"));
}

}  // namespace
}  // namespace rewire::elastic
