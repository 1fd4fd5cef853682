// The leader changes the members of a world.
#include <gmock/gmock.h>

#include "reconfig/elastic/leader/leader.h"
#include "tests/unit/elastic/leader/leader_driver.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// ---- a change of members ------------------------------------------------------------------------

TEST_F(LeaderTest, GrowthWaitsForJoiner) {
  const uint64_t id = d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  EXPECT_FALSE(d.Last<Spawn>().has_value());  // its id is reserved first
  d.Store();
  EXPECT_EQ(d.leader.record().next_member, 4u);
  EXPECT_THAT(d.Last<Spawn>()->members, ElementsAre(3));
  EXPECT_EQ(d.Last<Spawn>()->slots, 4u);
  EXPECT_THAT(d.Last<Spawn>()->stay, ElementsAre(0, 1, 2));
  d.Connect(3);
  EXPECT_TRUE(d.Sent<Welcome>(3).value().joining);
  EXPECT_THAT(Ids(d.Sent<Welcome>(3).value().world), ElementsAre(0, 1, 3, 2));
  EXPECT_TRUE(d.Sent<Welcome>(3).value().leaving.empty());
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);  // it has no communicators yet
  d.Say(3, CommunicatorCreated{kComm, 4, {2}, false, ""});
  const std::vector<MemberId> all{0, 1, 2, 3};
  d.Prepare(all, 0);
  EXPECT_EQ(d.Sent<Build>(3).value().builds[0].ranks, 4u);
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);  // its program is not in its first update
  d.BoundaryAll({3});
  ASSERT_EQ(d.leader.phase(), Phase::kPropose);
  EXPECT_FALSE(d.Sent<Propose>(3).has_value());
  EXPECT_EQ(d.Sent<Propose>(0).value().cuts[0].communicator, kUpdateBoundary);
  EXPECT_EQ(d.Sent<Propose>(0).value().cuts[0].cut, 9u);
  d.PledgeAll(kThree);
  EXPECT_TRUE(d.Sent<Decide>(3).value().go);
  EXPECT_EQ(d.leader.phase(), Phase::kArmed);
  d.BoundaryAll(kThree);
  EXPECT_EQ(d.leader.phase(), Phase::kAtBoundary);
  d.VerifyAll({0, 1, 2});
  EXPECT_EQ(d.leader.phase(), Phase::kAtBoundary);
  d.VerifyAll({3});
  d.Store();
  EXPECT_THAT(Ids(d.Sent<Commit>(3).value().record.world), ElementsAre(0, 1, 3, 2));
  d.Finish(all);
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kDone);
  // The registry has also advanced: a second change is possible.
  d.Ask({RequestKind::kResize, 2, {}, {}, ""});
}

TEST_F(LeaderTest, TellsJoinerWhichMembersLeave) {
  d.Ask({RequestKind::kReplace, 0, {1}, {}, ""});
  d.Store();
  d.Connect(3);
  const std::vector<WorldMember> leaving = d.Sent<Welcome>(3).value().leaving;
  ASSERT_EQ(leaving.size(), 1u);
  EXPECT_EQ(leaving[0].member, 1u);
  EXPECT_EQ(leaving[0].data_address, "addr");
}

TEST_F(LeaderTest, DrainedMemberVerifiesAndLeaves) {
  d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
  d.Store();
  d.Prepare(kThree, 0);
  EXPECT_TRUE(d.Sent<Build>(1).value().builds.empty());
  EXPECT_THAT(d.Sent<Build>(2).value().builds[0].held, testing::ElementsAre(1u));
  d.PledgeAll(kThree);
  d.BoundaryAll(kThree);
  d.VerifyAll(kThree);
  d.Store();
  EXPECT_FALSE(d.Sent<Commit>(1).value().record.world.SlotOf(1).has_value());
  d.leader.OnDisconnect(d.now, 1, &d.out);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  d.Finish({0, 2});
  EXPECT_TRUE(d.leader.steady());
}

TEST_F(LeaderTest, DrainedMemberStaysUntilOldGenerationsAreRetired) {
  d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
  d.Store();
  d.Prepare(kThree, 0);
  d.PledgeAll(kThree);
  d.BoundaryAll(kThree);
  d.VerifyAll(kThree);
  d.Store();
  d.silent = {1};  // it has no more messages to send
  d.Pass(seconds(4));
  EXPECT_FALSE(d.Last<Kick>().has_value());
  for (MemberId m : {0u, 2u}) d.Say(m, Position{kComm, true, 2, false, 0, {}, {1}});
  d.Finish({0, 2});
  EXPECT_EQ(d.leader.phase(), Phase::kRetiring);
  EXPECT_FALSE(d.Last<Kick>().has_value());
  const std::vector<GenerationId> old{{1, kComm}};
  for (MemberId m : {0u, 2u}) {
    ASSERT_TRUE(d.Sent<Retire>(m).has_value());
    EXPECT_EQ(d.Sent<Retire>(m)->generations, old);
    d.Say(m, Position{kComm, true, 2, false, 0, {}, {}});
  }
  ASSERT_TRUE(d.Last<Kick>().has_value());
  EXPECT_EQ(d.Last<Kick>()->member, 1u);
  EXPECT_FALSE(d.Sent<Lost>(0).has_value());
}

TEST_F(LeaderTest, APinEndsThePreparationWithItsReason) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
  const Time pinned_at = d.now;
  d.Say(1, CommunicatorPinned{kComm, "a graph"});
  d.Store();
  d.Pass(seconds(1));
  EXPECT_EQ(d.leader.phase(), Phase::kSteady);
  EXPECT_TRUE(d.Noted("is pinned on member 1: a graph"));
  ASSERT_EQ(d.leader.Pinned().size(), 1u);
  EXPECT_EQ(d.leader.Pinned()[0].member, 1u);
  EXPECT_EQ(d.leader.Pinned()[0].since, pinned_at);
  d.Say(1, CommunicatorPinned{{9, 9}, "not reported before"});
  EXPECT_EQ(d.leader.Pinned().size(), 1u);
  EXPECT_THAT(d.AskInVain({RequestKind::kRebuild, 0, {}, {}, ""}),
              HasSubstr("is pinned on member 1"));
  d.Say(1, CommunicatorPinned{kComm, ""});
  EXPECT_TRUE(d.leader.Pinned().empty());
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
}

TEST_F(LeaderTest, AbortsWhenPlansDiffer) {
  const uint64_t id = d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
  d.Store();
  d.Say(0, Prepared{2, true, "", 5, {}});
  d.Say(1, Prepared{2, true, "", 6, {}});
  d.Say(2, Prepared{2, true, "", 5, {}});
  EXPECT_THAT(d.leader.StatusOf(id).text, HasSubstr("the plan of member 1 differs"));
}

TEST_F(LeaderTest, NamesTheMembersWithOtherPlansThanMost) {
  for (const MemberId other : kThree) {
    const uint64_t id = d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
    d.Store();
    const Epoch epoch = d.Sent<Prepare>(0).value().epoch;
    for (MemberId m : kThree) d.Say(m, Prepared{epoch, true, "", m == other ? 6u : 5u, {}});
    EXPECT_EQ(d.leader.StatusOf(id).text,
              "the plan of member " + std::to_string(other) + " differs from the others'");
  }
  const uint64_t id = d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
  d.Store();
  const Epoch epoch = d.Sent<Prepare>(0).value().epoch;
  for (MemberId m : kThree) d.Say(m, Prepared{epoch, true, "", m, {}});
  EXPECT_EQ(d.leader.StatusOf(id).text, "the plans of members 0, 1, 2 are not the same");
}

TEST_F(LeaderTest, AbortsWhenCheckOfStateFails) {
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

TEST_F(LeaderTest, FailsRequestWhenJoinerDoesNotStartOrIsLost) {
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

TEST_F(LeaderTest, MergesRequestsDuringTransitionIntoNext) {
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

// The waiting change would remove the member as well, but without a deadline.
TEST_F(LeaderTest, AMemberThatLeavesByAWaitingChangeCanBeDrained) {
  d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  d.Ask({RequestKind::kResize, 1, {}, {}, ""});
  EXPECT_THAT(d.AskInVain({RequestKind::kReplace, 0, {2}, {}, ""}),
              HasSubstr("member=2: an earlier change removes this member"));
  d.Say(2, ReclaimNotice{5000});
  d.Store();
  EXPECT_THAT(Ids(d.Sent<Prepare>(0).value().to), ElementsAre(0, 1));
}

// The replacement waits for a process that starts, perhaps for minutes.
TEST_F(LeaderTest, ADrainWithADeadlineDoesNotWaitForTheReplacementOfItsMember) {
  const uint64_t replace = d.Ask({RequestKind::kReplace, 0, {2}, {}, ""});
  d.Store();
  ASSERT_EQ(d.leader.phase(), Phase::kReserve);
  d.Say(2, ReclaimNotice{5000});
  EXPECT_EQ(d.leader.StatusOf(replace).state, RequestState::kWaiting);
  d.Store();
  EXPECT_THAT(Ids(d.Sent<Prepare>(0).value().to), ElementsAre(0, 1));
}

TEST_F(LeaderTest, ADrainWithADeadlineJoinsTheChangeThatRemovesItsMember) {
  const uint64_t shrink = d.Ask({RequestKind::kResize, 2, {}, {}, ""});
  d.Store();
  ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
  d.Say(2, ReclaimNotice{5000});
  EXPECT_EQ(d.leader.StatusOf(shrink).state, RequestState::kRunning);
  d.Pass(milliseconds(5400));
  EXPECT_TRUE(d.Noted("member 2 is lost: it did not leave in time"));
}

TEST_F(LeaderTest, DrainWithDeadlineGoesFirst) {
  const uint64_t grow = d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  d.Say(2, ReclaimNotice{5000});
  EXPECT_EQ(d.leader.StatusOf(grow).state, RequestState::kWaiting);
  EXPECT_EQ(d.Last<EndProcess>()->member, 3u);
  d.Store();
  EXPECT_THAT(Ids(d.Sent<Prepare>(0).value().to), ElementsAre(0, 1));
}

TEST_F(LeaderTest, ARebuildSaysNothingAboutTheDeadlineOfADrain) {
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  d.Store();
  d.Pass(seconds(20));
  d.Prepare(kThree, 0);
  d.PledgeAll(kThree);
  d.Store();
  d.Finish(kThree);
  ASSERT_TRUE(d.leader.steady());
  d.Ask({RequestKind::kDrain, 0, {1}, seconds(2), ""});
  EXPECT_FALSE(d.Noted("the deadline may be missed"));
}

TEST_F(LeaderTest, WarnsAtOnceOfDeadlineThatCannotBeMet) {
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
  EXPECT_TRUE(d.Noted("the deadline may be missed"));
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);  // begun nevertheless
}

}  // namespace
}  // namespace rewire::elastic
