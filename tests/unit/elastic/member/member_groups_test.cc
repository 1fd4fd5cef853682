// A member's group communicators get other ranks and another identity at a change of members.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reconfig/elastic/member/member.h"
#include "reconfig/world/identity.h"

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::Pair;

const CommunicatorId kWorld{0xaaaaaaaa00000000, 1};
const CommunicatorId kTensor{0xbbbbbbbb00000000, 1};

// Member 0 of a world of two, with a communicator over the world and the group communicator "tp".
class MemberGroupsTest : public testing::Test {
 protected:
  MemberGroupsTest() : member(MemberOptions{}) {
    member.OnConnected(now, &out);
    member.OnMessage(now, Commit{Record(1, {0, 1})}, &out);
    member.OnCommunicatorCreated(now, {kWorld, 2, {0}, false, ""}, &out);
    member.OnCommunicatorCreated(now, {kTensor, 2, {0}, false, "", "tp", 1}, &out);
    out.clear();
  }
  static WorldRecord Record(Epoch epoch, const std::vector<MemberId>& members) {
    WorldRecord record;
    record.world.epoch = epoch;
    for (MemberId m : members) record.world.members.push_back({m, 0, "addr"});
    return record;
  }
  void PrepareAndBuild(const UniqueIdBytes& id) {
    Prepare prepare;
    prepare.epoch = 2;
    prepare.kind = TransitionKind::kLoss;
    prepare.from = Record(1, {0, 1}).world;
    prepare.to = Record(2, {0}).world;
    member.OnMessage(now, Lost{1, {1}}, &out);
    member.OnMessage(now, prepare, &out);
    plan = Last<MakePlan>();
    member.OnMinted(now, 2, kTensor, {0}, id, &out);
    member.OnMessage(now, Build{2, {{kWorld, 1, {0}, id, false}, {kTensor, 1, {0}, id, true}}},
                     &out);
  }
  void CommitIt() {
    member.OnPlanned(now, 2, uint64_t{5}, &out);
    member.OnBuilt(now, 2, absl::OkStatus(), {}, &out);
    member.OnBoundary(now, {}, &out);
    member.OnMessage(now, Restore{2, 0, {}}, &out);
    member.OnStreamed(now, 2, absl::OkStatus(), 0, 0, &out);
    member.OnMessage(now, Commit{Record(2, {0})}, &out);
    ASSERT_EQ(member.epoch(), 2u);
  }
  template <typename T>
  std::optional<T> Last() {
    std::optional<T> last;
    for (const MemberAction& action : out) {
      if (const auto* a = std::get_if<T>(&action)) last = *a;
    }
    return last;
  }
  // Returns the messages of a type, in their order, and forgets all actions.
  template <typename T>
  std::vector<T> Take() {
    std::vector<T> sent;
    for (const MemberAction& action : std::exchange(out, {})) {
      const auto* a = std::get_if<SendMessage>(&action);
      if (a == nullptr) continue;
      if (const auto* m = std::get_if<T>(&a->message)) sent.push_back(*m);
    }
    return sent;
  }
  // Returns the reports of a new connection.
  std::vector<CommunicatorCreated> Reports() {
    out.clear();
    member.OnConnected(now, &out);
    return Take<CommunicatorCreated>();
  }

  const UniqueIdBytes id = UniqueIdBytes(NCCL_UNIQUE_ID_BYTES, 'a');
  const CommunicatorId next = IdentityOfUniqueId(id.data());
  Time now = Time{} + seconds(50);
  std::vector<MemberAction> out;
  std::optional<MakePlan> plan;
  Member member;
};

TEST_F(MemberGroupsTest, ThePlanHasTheGroupsAndTheMintedIdHasItsSlots) {
  PrepareAndBuild(id);
  EXPECT_THAT(plan.value().groups, ElementsAre(Pair("tp", kTensor)));
  const auto minted = Take<Minted>();
  ASSERT_EQ(minted.size(), 1u);
  EXPECT_EQ(minted[0].communicator, kTensor);
  EXPECT_THAT(minted[0].slots, ElementsAre(0u));
}

TEST_F(MemberGroupsTest, TheCommitRenamesTheGroupsOnly) {
  PrepareAndBuild(id);
  out.clear();
  CommitIt();
  // The leader has renamed them as well.
  EXPECT_TRUE(Take<CommunicatorCreated>().empty());
  const std::vector<CommunicatorCreated> reports = Reports();
  ASSERT_EQ(reports.size(), 2u);
  for (const CommunicatorCreated& report : reports) {
    EXPECT_EQ(report.communicator, report.group.empty() ? kWorld : next);
    EXPECT_EQ(report.ranks, 1u);
    EXPECT_THAT(report.held, ElementsAre(0u));
    EXPECT_EQ(report.creation, 0u);
  }
}

// Another thread of the program may destroy a communicator while the change is committed.
TEST_F(MemberGroupsTest, EventsThatWereOnTheirWayReachTheRenamedCommunicator) {
  PrepareAndBuild(id);
  CommitIt();
  out.clear();
  member.OnCommunicatorPinned(now, kTensor, "a live CUDA graph", &out);
  const auto pinned = Take<CommunicatorPinned>();
  ASSERT_EQ(pinned.size(), 1u);
  EXPECT_EQ(pinned[0].communicator, next);
  member.OnCommunicatorDestroyed(now, kTensor, 0, &out);
  const auto destroyed = Take<CommunicatorDestroyed>();
  ASSERT_EQ(destroyed.size(), 1u);
  EXPECT_EQ(destroyed[0].communicator, next);
  EXPECT_EQ(Reports().size(), 1u);
}

TEST_F(MemberGroupsTest, AnAbandonedChangeRenamesNothing) {
  PrepareAndBuild(id);
  member.OnMessage(now, Abort{2, "no"}, &out);
  const std::vector<CommunicatorCreated> reports = Reports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[1].communicator, kTensor);
  EXPECT_EQ(reports[1].creation, 1u);
}

TEST_F(MemberGroupsTest, ALeaderThatHasTheOldReportsGetsTheNew) {
  PrepareAndBuild(id);
  member.OnPlanned(now, 2, uint64_t{5}, &out);
  member.OnBuilt(now, 2, absl::OkStatus(), {}, &out);
  member.OnBoundary(now, {}, &out);
  member.OnMessage(now, Restore{2, 0, {}}, &out);
  member.OnStreamed(now, 2, absl::OkStatus(), 0, 0, &out);
  member.OnDisconnected(now, &out);
  ASSERT_EQ(Reports()[1].communicator, kTensor);
  member.OnMessage(now, Commit{Record(2, {0})}, &out);
  const std::vector<MemberAction> actions = out;
  const auto destroyed = Take<CommunicatorDestroyed>();
  ASSERT_EQ(destroyed.size(), 1u);
  EXPECT_EQ(destroyed[0].communicator, kTensor);
  out = actions;
  const auto created = Take<CommunicatorCreated>();
  ASSERT_EQ(created.size(), 1u);
  EXPECT_EQ(created[0].communicator, next);
  EXPECT_EQ(created[0].group, "tp");
}

TEST_F(MemberGroupsTest, RefusesAnIdThatIsCutShort) {
  PrepareAndBuild("short");
  const auto prepared = Take<Prepared>();
  ASSERT_EQ(prepared.size(), 1u);
  EXPECT_FALSE(prepared[0].ok);
  EXPECT_FALSE(Last<BuildGenerations>().has_value());
}

}  // namespace
}  // namespace rewire::elastic
