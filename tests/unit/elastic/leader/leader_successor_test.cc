// A leader starts on the record of its predecessor: the store decides, and the members reconnect
// one after the other.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "reconfig/elastic/leader/leader.h"
#include "tests/unit/elastic/leader/leader_driver.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(LeaderTest, SuccessorWaitsLongerWhileNobodyIsBack) {
  LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
  next.Pass(seconds(30));
  EXPECT_EQ(next.leader.phase(), Phase::kRecovering);
  for (MemberId m : kThree) next.Connect(m, true, 1);
  EXPECT_EQ(next.leader.phase(), Phase::kSteady);
  EXPECT_FALSE(next.Last<EndJob>().has_value());
}

TEST_F(LeaderTest, SuccessorWaitsForAllMembersBeforeItStopsReclaimedJob) {
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

TEST_F(LeaderTest, SuccessorLosesNoLateDrainWhileAnotherIsMissing) {
  LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
  for (MemberId m : {0u, 1u}) next.Connect(m, true, 1);
  next.Say(1, ReclaimNotice{5000});
  next.Pass(seconds(9));
  EXPECT_FALSE(next.Noted("is lost"));
  next.Pass(seconds(2));
  EXPECT_TRUE(next.Noted("member 2 is lost: it did not reconnect"));
  EXPECT_FALSE(next.Noted("member 1 is lost"));
}

TEST_F(LeaderTest, SuccessorRestoresWorldAfterLossDuringRecovery) {
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
    EXPECT_TRUE(next.Noted(all ? "begins: loss of member 1" : "begins: loss of member 1, 2"));
  }
}

TEST_F(LeaderTest, RepeatsUnansweredSwapAndRecognisesItsRecord) {
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

TEST_F(LeaderTest, EndsWhenAnotherLeaderHasWritten) {
  const uint64_t id = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  WorldRecord other = d.leader.record();
  other.revision += 5;
  d.leader.OnStoreResult(d.now, StoreAnswer{false, other}, &d.out);
  EXPECT_EQ(d.leader.phase(), Phase::kStopped);
  EXPECT_EQ(d.leader.StatusOf(id).state, RequestState::kFailed);
  EXPECT_TRUE(d.Last<Kick>().has_value());
}

TEST_F(LeaderTest, SuccessorFencesBeforeItWelcomes) {
  const WorldRecord record = d.leader.record();
  Leader next(LeaderDriver::Options(3), record);
  std::vector<LeaderAction> out;
  next.Start(d.now, &out);
  next.OnConnect(d.now, Hello{0, 100, 1, true, "addr", false, 1, 0, {}}, &out);
  ASSERT_EQ(out.size(), 2u);  // the write, and a note: no member is welcomed on an unfenced record
  // The record that the predecessor was still writing becomes the valid one.
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

TEST_F(LeaderTest, RejectsNewJobOnStoreOfOldJob) {
  LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
  next.leader.OnConnect(next.now, Hello{0, 555, 1, true, "", false, 0, 0, {}}, &next.out);
  EXPECT_THAT(next.Sent<Refused>(0).value().reason,
              HasSubstr("the store is of a job that has ended or still runs"));
}

TEST_F(LeaderTest, MemberNotBackInGraceTimeIsLost) {
  WorldRecord record = d.leader.record();
  LeaderDriver next(LeaderDriver::Options(3), record);
  next.Connect(0, true, 1);
  next.Connect(2, true, 1);
  EXPECT_EQ(next.leader.phase(), Phase::kRecovering);
  next.Pass(seconds(11));
  EXPECT_THAT(next.Sent<Lost>(0).value().members, ElementsAre(1));
}

TEST_F(LeaderTest, SuccessorRestoresWorldOfBrokenMembers) {
  LeaderDriver next(LeaderDriver::Options(3), d.leader.record());
  next.Connect(0, true, 1, true);
  next.Connect(1, true, 1);
  next.Connect(2, true, 1);
  // All members are alive, but all must abort and recover together.
  EXPECT_TRUE(next.Sent<Lost>(1).value().members.empty());
  next.Store();
  EXPECT_EQ(next.Sent<Prepare>(1).value().kind, TransitionKind::kLoss);
}

TEST_F(LeaderTest, RefusesUnknownMembers) {
  d.Connect(9);
  EXPECT_THAT(d.Sent<Refused>(9).value().reason, HasSubstr("not a member of this job"));
  d.leader.OnConnect(d.now, Hello{1, 555, 1, true, "", false, 0, 0, {}}, &d.out);
  EXPECT_THAT(d.Sent<Refused>(1).value().reason, HasSubstr("another process"));
}

}  // namespace
}  // namespace rewire::elastic
