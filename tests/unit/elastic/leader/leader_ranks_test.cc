// The leader and communicators that have several ranks in one process.
#include <gmock/gmock.h>

#include "tests/unit/elastic/leader/leader_driver.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A communicator of six ranks, two of them in each member's process.
class LeaderRanksTest : public LeaderTest {
 protected:
  void Report(MemberId m, std::vector<uint32_t> held) {
    d.Say(m, CommunicatorCreated{kShared, 6, std::move(held), false, ""});
  }
  void ReportAll() {
    for (MemberId m : kThree) Report(m, {2 * m, 2 * m + 1});
  }
  void Mint(Epoch epoch) {
    for (const CommunicatorId& id : {kComm, kShared}) {
      d.Say(0, Minted{epoch, id, UniqueIdBytes(128, 'u')});
    }
  }
  const CommunicatorId kShared{0xdddddddd00000000, 1};
};

TEST_F(LeaderRanksTest, EachMemberBuildsAllItsRanks) {
  ReportAll();
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  ASSERT_TRUE(d.Store());
  EXPECT_THAT(d.Sent<Prepare>(0).value().mint, ElementsAre(kComm, kShared));
  EXPECT_THAT(d.Sent<Prepare>(1).value().mint, IsEmpty());
  Mint(2);
  const std::vector<CommunicatorBuild> builds = d.Sent<Build>(1).value().builds;
  ASSERT_EQ(builds.size(), 2u);
  EXPECT_EQ(builds[1].communicator, kShared);
  EXPECT_EQ(builds[1].ranks, 6u);
  EXPECT_THAT(builds[1].held, ElementsAre(2u, 3u));
}

TEST_F(LeaderRanksTest, WaitsForTheRanksThatAProcessHasNotMade) {
  ReportAll();
  Report(2, {4});
  const uint64_t id = d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  ASSERT_TRUE(d.Store());
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);
  EXPECT_THAT(d.leader.StatusOf(id).text,
              HasSubstr("communicator dddddddd has been reported by 5 of its 6 ranks"));
  Report(2, {4, 5});
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
}

TEST_F(LeaderRanksTest, PreparesAgainWhenOneRankIsDestroyed) {
  ReportAll();
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  ASSERT_TRUE(d.Store());
  ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
  Report(1, {3});
  EXPECT_TRUE(d.Noted("member 1 destroyed a rank of communicator dddddddd"));
  ASSERT_TRUE(d.Store());
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);
  for (MemberId m : kThree) d.Say(m, CommunicatorDestroyed{kShared});
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
}

TEST_F(LeaderRanksTest, ARankThatIsPinnedPinsTheCommunicator) {
  ReportAll();
  d.Say(1, CommunicatorPinned{kShared, "a live CUDA graph"});
  EXPECT_THAT(d.AskInVain({RequestKind::kRebuild, 0, {}, {}, ""}),
              HasSubstr("dddddddd is pinned on member 1: a live CUDA graph"));
}

TEST_F(LeaderRanksTest, AChangeOfMembersIsRefusedByName) {
  ReportAll();
  EXPECT_THAT(d.AskInVain({RequestKind::kResize, 4, {}, {}, ""}),
              HasSubstr("communicator dddddddd has several ranks in member 0's process"));
}

TEST_F(LeaderRanksTest, ALossEndsTheJobByName) {
  ReportAll();
  d.leader.OnDisconnect(d.now, 1, &d.out);
  ASSERT_TRUE(d.Store());
  const std::optional<Stop> stop = d.Sent<Stop>(0);
  ASSERT_TRUE(stop.has_value());
  EXPECT_THAT(stop->reason, HasSubstr("loss of member 1"));
  EXPECT_THAT(stop->reason, HasSubstr("dddddddd has several ranks in member 0's process"));
  EXPECT_THAT(stop->reason, HasSubstr("start the job again"));
}

}  // namespace
}  // namespace rewire::elastic
