// Every phase of a transition has a deadline. Then the leader gives the change up, loses the
// missing members, or continues without them, and names the members that it waited for.
#include <gmock/gmock.h>

#include <string>

#include "reconfig/elastic/leader/leader.h"
#include "tests/unit/elastic/leader/leader_driver.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const LeaderOptions kTimes;

// Returns the end of a reason that names its limit.
std::string Limit(const std::string& setting, Duration value) {
  return " (" + setting + "=" + std::to_string(static_cast<int64_t>(ToMilliseconds(value))) + ")";
}

// Three members, of which member 1 is to leave. All are alive: only their answers are missing.
class LeaderDeadlinesTest : public LeaderTest {
 protected:
  void Begin() {
    id_ = d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
    ASSERT_TRUE(d.Store());
    ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
  }
  void Propose() {
    Begin();
    d.Prepare(kThree, 0);
    ASSERT_EQ(d.leader.phase(), Phase::kPropose);
  }
  void Arm() {
    Propose();
    d.PledgeAll(kThree);
    ASSERT_EQ(d.leader.phase(), Phase::kArmed);
  }
  void StandAtBoundary() {
    Arm();
    d.BoundaryAll(kThree);
    ASSERT_EQ(d.leader.phase(), Phase::kAtBoundary);
  }
  void Commit() {
    StandAtBoundary();
    d.VerifyAll(kThree);
    ASSERT_TRUE(d.Store());
    ASSERT_EQ(d.leader.phase(), Phase::kCommitted);
  }
  // Member 1 is lost, and its survivors have begun to recover.
  void Lose() {
    d.leader.OnDisconnect(d.now, 1, &d.out);
    ASSERT_TRUE(d.Store());
    ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
  }
  void ExpectGivenUp(const std::string& why) {
    EXPECT_EQ(d.leader.StatusOf(id_).state, RequestState::kFailed);
    EXPECT_THAT(d.leader.StatusOf(id_).text, HasSubstr(why));
    EXPECT_EQ(d.leader.phase(), Phase::kSteady);
    EXPECT_EQ(d.leader.record().world.epoch, 1u);
    // A member that was told to prepare is told that it is over.
    EXPECT_EQ(d.Sent<Abort>(0).has_value(), d.Sent<rewire::elastic::Prepare>(0).has_value());
    EXPECT_FALSE(d.Sent<Lost>(0).has_value());
  }

  uint64_t id_ = 0;
};

// ---- a planned change ---------------------------------------------------------------------------

TEST_F(LeaderDeadlinesTest, GivesUpWhenAJoinerMakesNoCommunicator) {
  id_ = d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  d.Connect(3);
  d.Pass(kTimes.join + seconds(1));
  ExpectGivenUp("not ready in time: ");
  ExpectGivenUp(Limit("limit_ms", kTimes.join));
  EXPECT_EQ(d.Last<EndProcess>()->member, 3u);
}

TEST_F(LeaderDeadlinesTest, GivesUpWhenAMemberDoesNotPrepare) {
  Begin();
  d.Say(0, Minted{2, kComm, UniqueIdBytes(128, 'u')});
  for (MemberId m : {0u, 1u}) d.Say(m, Prepared{2, true, "", 5, {}});
  d.Pass(kTimes.build + seconds(1));
  ExpectGivenUp("not prepared in time: member 2" + Limit("REWIRE_BUILD_MS", kTimes.build));
}

TEST_F(LeaderDeadlinesTest, GivesUpWhenAJoinerDoesNotCallItsFirstUpdate) {
  id_ = d.Ask({RequestKind::kResize, 4, {}, {}, ""});
  d.Store();
  d.Connect(3);
  d.Say(3, CommunicatorCreated{kComm, 4, {2}, false, ""});
  d.Prepare({0, 1, 2, 3}, 0);
  d.Pass(kTimes.build + seconds(1));
  ExpectGivenUp("not in its first update in time: member 3" +
                Limit("REWIRE_BUILD_MS", kTimes.build));
}

TEST_F(LeaderDeadlinesTest, GivesUpWhenAMemberDoesNotPledge) {
  Propose();
  for (uint32_t round = 0; round < kTimes.max_rounds; ++round) {
    ASSERT_EQ(d.leader.phase(), Phase::kPropose);
    d.PledgeAll({0, 1}, round);
    d.Pass(kTimes.decision + milliseconds(200));
  }
  ExpectGivenUp("no answer from member 2" + Limit("REWIRE_DECISION_MS", kTimes.decision));
}

TEST_F(LeaderDeadlinesTest, GivesUpWhenNoMemberReachesTheBoundary) {
  Arm();
  d.Pass(kTimes.arm + seconds(1));
  ExpectGivenUp("not at the update boundary in time: member 0");
  ExpectGivenUp(Limit("REWIRE_ARM_MS", kTimes.arm));
}

TEST_F(LeaderDeadlinesTest, GivesUpWhenAMemberDoesNotReachTheBoundary) {
  Arm();
  d.BoundaryAll({0, 1});
  d.Pass(kTimes.boundary + seconds(1));
  ExpectGivenUp("not at the update boundary in time: member 2" +
                Limit("REWIRE_BOUNDARY_MS", kTimes.boundary));
}

TEST_F(LeaderDeadlinesTest, GivesUpWhenAMemberDoesNotVerify) {
  StandAtBoundary();
  d.VerifyAll({0, 1});
  d.Pass(kTimes.boundary + seconds(1));
  ExpectGivenUp("not verified in time: member 2" + Limit("REWIRE_BOUNDARY_MS", kTimes.boundary));
}

// The change is decided, so nothing can be given up.
TEST_F(LeaderDeadlinesTest, EndsTheChangeWithoutAMemberThatDoesNotEnter) {
  Commit();
  d.Finish({0});
  d.Pass(kTimes.enter + seconds(1));
  EXPECT_TRUE(d.Noted("committed, but not in the new epoch yet: member 2"));
  EXPECT_EQ(d.leader.phase(), Phase::kSteady);
  EXPECT_EQ(d.leader.record().world.epoch, 2u);
  EXPECT_EQ(d.leader.StatusOf(id_).state, RequestState::kDone);
}

TEST_F(LeaderDeadlinesTest, EndsTheChangeBeforeAllOldGenerationsAreDestroyed) {
  Commit();
  for (MemberId m : {0u, 2u}) d.Say(m, Position{kComm, true, 2, false, 0, {}, {1}});
  d.Finish({0, 2});
  ASSERT_EQ(d.leader.phase(), Phase::kRetiring);
  d.Say(0, Position{kComm, true, 2, false, 0, {}, {}});
  d.Pass(kTimes.enter + seconds(1));
  EXPECT_TRUE(d.Noted("old generations are not destroyed yet on member 2"));
  EXPECT_EQ(d.leader.phase(), Phase::kSteady);
}

// ---- the recovery from a loss -------------------------------------------------------------------

TEST_F(LeaderDeadlinesTest, ARecoveryThatIsNotPreparedBeginsAgain) {
  Lose();
  const Epoch first = d.Sent<Prepare>(0).value().epoch;
  d.Say(0, Minted{first, kComm, UniqueIdBytes(128, 'u')});
  d.Say(0, Prepared{first, true, "", 5, {}});
  d.Pass(kTimes.build + seconds(1));
  EXPECT_TRUE(d.Noted("not prepared in time: member 2"));
  while (d.Store()) {
  }
  EXPECT_GT(d.Sent<Prepare>(0).value().epoch, first);
  d.Recover({0, 2});
  EXPECT_TRUE(d.leader.steady());
}

TEST_F(LeaderDeadlinesTest, ARecoveryLosesTheMemberThatDoesNotReachTheBoundary) {
  Lose();
  d.Prepare({0, 2}, 0);
  ASSERT_EQ(d.leader.phase(), Phase::kArmed);
  d.BoundaryAll({0});
  d.Pass(std::max(kTimes.arm, kTimes.boundary) + seconds(1));
  EXPECT_TRUE(d.Noted("member 2 is lost: it did not reach the update boundary"));
  EXPECT_THAT(d.Sent<Lost>(0).value().members, ElementsAre(1, 2));
}

TEST_F(LeaderDeadlinesTest, ARecoveryThatIsNotVerifiedBeginsAgain) {
  Lose();
  d.Prepare({0, 2}, 0);
  d.BoundaryAll({0, 2});
  ASSERT_EQ(d.leader.phase(), Phase::kAtBoundary);
  const Epoch first = d.Sent<Prepare>(0).value().epoch;
  d.VerifyAll({0});
  d.Pass(kTimes.boundary + seconds(1));
  EXPECT_TRUE(d.Noted("not verified in time: member 2"));
  while (d.Store()) {
  }
  EXPECT_GT(d.Sent<Prepare>(0).value().epoch, first);
}

// ---- communicators that vanish ------------------------------------------------------------------

TEST_F(LeaderDeadlinesTest, ARebuildWhoseCommunicatorsVanishIsNoSuccess) {
  const CommunicatorId half{0xcccccccc00000000, 1};
  d.Say(0, CommunicatorCreated{half, 2, {0}, false, ""});
  id_ = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  ASSERT_TRUE(d.Store());
  ASSERT_EQ(d.leader.phase(), Phase::kReserve);  // waits for the second rank of it
  for (MemberId m : kThree) d.Say(m, CommunicatorDestroyed{kComm});
  d.Say(0, CommunicatorDestroyed{half});
  d.Pass(seconds(1));
  ExpectGivenUp("nothing to rebuild: no member has a communicator");
}

}  // namespace
}  // namespace rewire::elastic
