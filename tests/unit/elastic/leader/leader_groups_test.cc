// The leader and group communicators, whose groups a change of members makes anew.
#include <gmock/gmock.h>

#include "reconfig/world/identity.h"
#include "tests/unit/elastic/leader/leader_driver.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

UniqueIdBytes Id(char byte) { return UniqueIdBytes(NCCL_UNIQUE_ID_BYTES, byte); }
CommunicatorId IdentityOf(char byte) { return IdentityOfUniqueId(Id(byte).data()); }

// Slots 0 and 1 have a communicator "tp" of two ranks, and slot 2 has one of its own.
class LeaderGroupsTest : public LeaderTest {
 protected:
  void Report(MemberId m, const CommunicatorId& id, uint32_t ranks, uint32_t rank,
              uint32_t creation = 1) {
    d.Say(m, CommunicatorCreated{id, ranks, {rank}, false, "", "tp", creation});
  }
  void ReportAll() {
    Report(0, kPair, 2, 0);
    Report(1, kPair, 2, 1);
    Report(2, kSingle, 1, 0);
  }
  void Mint(MemberId from, const CommunicatorId& id, char byte, std::vector<uint32_t> slots) {
    d.Say(from, Minted{epoch_, id, Id(byte), std::move(slots)});
  }
  // The slots of the new world are those of the members 0, 1, 3 and 2.
  void Grow() {
    request_ = d.Ask({RequestKind::kResize, 4, {}, {}, ""});
    ASSERT_TRUE(d.Store());
    d.Connect(3);
    d.Say(3, CommunicatorCreated{kComm, 4, {2}, false, ""});
  }
  void ReportJoiner(uint32_t ranks = 2, uint32_t rank = 0) {
    Report(3, kOfJoiner, ranks, rank);
    ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
    epoch_ = d.Sent<Prepare>(0).value().epoch;
    d.Say(0, Minted{epoch_, kComm, Id('u')});
  }
  [[nodiscard]] CommunicatorBuild GroupBuild(MemberId m) const {
    const std::vector<CommunicatorBuild> builds = d.Sent<Build>(m).value().builds;
    EXPECT_EQ(builds.size(), 2u);
    EXPECT_EQ(builds[0].communicator, kComm);
    EXPECT_FALSE(builds[0].grouped);
    return builds.at(1);
  }
  void Commit(const std::vector<MemberId>& members) {
    for (MemberId m : members) d.Say(m, Prepared{epoch_, true, "", 5, {{kUpdateBoundary, 7}}});
    d.Say(3, AtBoundary{epoch_, 8, true, {8}, {8}, kAllSharded});
    for (MemberId m : kThree) d.Say(m, Agreed(epoch_, 0));
    for (MemberId m : kThree) d.Say(m, AtBoundary{epoch_, 8, true, {8}, {8}, kAllSharded});
    for (MemberId m : members) d.Say(m, Verified{epoch_, true, "", 10, 10});
    ASSERT_TRUE(d.Store());
    for (MemberId m : members) d.Say(m, Entered{epoch_, 1000});
    ASSERT_EQ(d.leader.phase(), Phase::kSteady);
  }

  const CommunicatorId kPair{0xbbbbbbbb00000000, 1};
  const CommunicatorId kSingle{0xcccccccc00000000, 1};
  const CommunicatorId kOfJoiner{0xdddddddd00000000, 1};
  Epoch epoch_ = 0;
  uint64_t request_ = 0;
};

TEST_F(LeaderGroupsTest, AGrowthBuildsTheNewGroups) {
  ReportAll();
  Grow();
  ReportJoiner();
  EXPECT_THAT(d.Sent<Prepare>(0).value().mint, ElementsAre(kComm));
  EXPECT_THAT(d.Sent<Prepare>(2).value().mint, IsEmpty());
  Mint(0, kPair, 'a', {0, 1});
  EXPECT_FALSE(d.Sent<Build>(0).has_value());
  Mint(2, kSingle, 'b', {2, 3});
  EXPECT_EQ(GroupBuild(0), (CommunicatorBuild{kPair, 2, {0}, Id('a'), true}));
  EXPECT_EQ(GroupBuild(1), (CommunicatorBuild{kPair, 2, {1}, Id('a'), true}));
  EXPECT_EQ(GroupBuild(2), (CommunicatorBuild{kSingle, 2, {1}, Id('b'), true}));
  EXPECT_EQ(GroupBuild(3), (CommunicatorBuild{kOfJoiner, 2, {0}, Id('b'), true}));
  Commit({0, 1, 2, 3});
  // The next change knows the communicators by their new identities.
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  ASSERT_TRUE(d.Store());
  EXPECT_THAT(d.Sent<Prepare>(3).value().mint, ElementsAre(IdentityOf('b')));
  EXPECT_THAT(d.Sent<Prepare>(2).value().mint, IsEmpty());
}

TEST_F(LeaderGroupsTest, ALossBuildsTheGroupsOfTheSurvivors) {
  ReportAll();
  d.leader.OnDisconnect(d.now, 0, &d.out);
  ASSERT_TRUE(d.Store());
  ASSERT_EQ(d.leader.phase(), Phase::kPrepare);
  epoch_ = d.Sent<Prepare>(1).value().epoch;
  d.Say(1, Minted{epoch_, kComm, Id('u')});
  Mint(1, kPair, 'a', {0, 1});
  EXPECT_EQ(GroupBuild(1), (CommunicatorBuild{kPair, 2, {0}, Id('a'), true}));
  EXPECT_EQ(GroupBuild(2), (CommunicatorBuild{kSingle, 2, {1}, Id('a'), true}));
}

TEST_F(LeaderGroupsTest, ARebuildKeepsTheIdentities) {
  ReportAll();
  d.Ask({RequestKind::kRebuild, 0, {}, {}, ""});
  ASSERT_TRUE(d.Store());
  EXPECT_THAT(d.Sent<Prepare>(0).value().mint, ElementsAre(kComm, kPair));
  EXPECT_THAT(d.Sent<Prepare>(2).value().mint, ElementsAre(kSingle));
  epoch_ = 2;
  for (const CommunicatorId& id : {kComm, kPair}) d.Say(0, Minted{epoch_, id, Id('u')});
  Mint(2, kSingle, 'v', {});
  EXPECT_EQ(GroupBuild(2), (CommunicatorBuild{kSingle, 1, {0}, Id('v'), false}));
}

TEST_F(LeaderGroupsTest, WaitsForTheMembersThatHaveNotMadeTheirs) {
  Report(0, kPair, 2, 0);
  Report(1, kPair, 2, 1);
  const uint64_t id = d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
  ASSERT_TRUE(d.Store());
  EXPECT_EQ(d.leader.phase(), Phase::kReserve);
  EXPECT_THAT(d.leader.StatusOf(id).text,
              HasSubstr("group communicator tp has not been created by member 2"));
  Report(2, kSingle, 1, 0);
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
}

TEST_F(LeaderGroupsTest, WaitsWhileACommunicatorIsMadeAgain) {
  ReportAll();
  const CommunicatorId again{0xeeeeeeee00000000, 1};
  d.Say(2, CommunicatorDestroyed{kSingle});
  Report(2, again, 1, 0, 2);
  const uint64_t id = d.Ask({RequestKind::kDrain, 0, {1}, {}, ""});
  ASSERT_TRUE(d.Store());
  EXPECT_THAT(d.leader.StatusOf(id).text,
              HasSubstr("group communicator tp is being made again: not all members have the"));
  const CommunicatorId pair_again{0xffffffff00000000, 1};
  for (MemberId m : {0, 1}) {
    Report(m, pair_again, 2, m, 2);
    EXPECT_EQ(d.leader.phase(), Phase::kReserve);  // "exists several times on member"
    d.Say(m, CommunicatorDestroyed{kPair});
  }
  EXPECT_EQ(d.leader.phase(), Phase::kPrepare);
}

TEST_F(LeaderGroupsTest, AJoinerMakesTheSameNames) {
  ReportAll();
  Grow();
  EXPECT_FALSE(d.Sent<Prepare>(0).has_value());
  EXPECT_THAT(d.leader.StatusOf(request_).text,
              HasSubstr("tp has not been created once by the new member 3"));
  d.Say(3, CommunicatorCreated{kSingle, 1, {0}, false, "", "dp", 1});
  Report(3, kOfJoiner, 2, 1);
  EXPECT_THAT(d.leader.StatusOf(request_).text,
              HasSubstr("dp has been created by the new member 3, but not by member 0"));
}

TEST_F(LeaderGroupsTest, AJoinerWithAnotherRankIsNamed) {
  ReportAll();
  Grow();
  ReportJoiner(4, 3);
  Mint(0, kPair, 'a', {0, 1});
  Mint(2, kSingle, 'b', {2, 3});
  EXPECT_FALSE(d.Sent<Build>(0).has_value());
  EXPECT_THAT(d.leader.StatusOf(request_).text,
              HasSubstr("tp: the new member 3 has rank 3 of 4: must be rank 0 of 2"));
}

TEST_F(LeaderGroupsTest, ContradictingGroupsAreNamed) {
  const struct {
    std::vector<uint32_t> slots;
    UniqueIdBytes id;
    const char* named;
  } kWrong[] = {
      {{1, 2}, Id('b'), "slots=1,2: another member says that slot 1 is in the group 0,1"},
      {{3, 2}, Id('b'), "slots=3,2: must be ascending and below 4"},
      {{2, 4}, Id('b'), "slots=2,4: must be ascending and below 4"},
      {{}, Id('b'), "slots=: must be ascending and below 4"},
      {{2, 3}, "b", "unique id: bytes=1: must be at least 128"},
  };
  for (const auto& wrong : kWrong) {
    GroupIds ids;
    ids.Expect({"tp"}, 4);
    EXPECT_EQ(ids.Add("tp", {2, kPair, Id('a'), {0, 1}}), "");
    EXPECT_THAT(ids.Add("tp", {2, kSingle, wrong.id, wrong.slots}), HasSubstr(wrong.named));
    EXPECT_EQ(ids.Missing(), "no unique id of group communicator tp for slot 2, 3");
  }
  ReportAll();
  Grow();
  ReportJoiner();
  Mint(0, kPair, 'a', {0, 1});
  Mint(2, kSingle, 'b', {1, 2});
  EXPECT_THAT(d.leader.StatusOf(request_).text, HasSubstr("member 2: group communicator tp"));
}

TEST_F(LeaderGroupsTest, TheDeadlineNamesTheMissingGroups) {
  ReportAll();
  Grow();
  ReportJoiner();
  Mint(0, kPair, 'a', {0, 1});
  d.Pass(seconds(400));
  EXPECT_THAT(d.leader.StatusOf(request_).text,
              HasSubstr("no unique id of group communicator tp for slot 2, 3"));
}

// The leader may restart between the commit and the members' learning of it.
TEST(LeaderGroupsAfterRestartTest, MembersReportTheirGroupsAgainAfterTheCommit) {
  const CommunicatorId before{0xbbbbbbbb00000000, 1};
  Registry registry;
  const Time now;
  const auto report = [&](MemberId m, const CommunicatorId& id, uint32_t ranks, uint32_t rank) {
    registry.Created(now, m, {id, ranks, {rank}, false, "", "tp", 0});
  };
  // Member 0 still reports the group that it had with member 1, which has left.
  registry.Created(now, 0, {kComm, 3, {0}, false, ""});
  report(0, before, 2, 0);
  registry.Created(now, 2, {kComm, 2, {1}, false, ""});
  report(2, IdentityOf('a'), 2, 1);
  registry.Settle(0, {0, 2});
  EXPECT_EQ(registry.OfGroup(0, "tp"), before);
  registry.Destroyed(0, before);
  EXPECT_THAT(std::string(registry.ReadyForBoundary({0, 2}).message()),
              HasSubstr("tp has not been created by member 0"));
  report(0, IdentityOf('a'), 2, 0);
  EXPECT_TRUE(registry.ReadyForBoundary({0, 2}).ok());
  EXPECT_TRUE(registry.ReadyForSwap({0, 2}).ok());
}

}  // namespace
}  // namespace rewire::elastic
