// A group communicator gets another identity when an update boundary moves it to another group.
#include <atomic>
#include <set>
#include <thread>

#include "reconfig/base/counters.h"
#include "reconfig/world/identity.h"
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr CommunicatorId kFirst{1, 1};

// A generation for another group, built with the unique id that has this byte everywhere.
elastic::CommunicatorBuild Grouped(const Program& program, char byte, uint32_t ranks = 3,
                                   uint32_t rank = 2) {
  return {program.comm.id(), ranks, {rank}, std::string(NCCL_UNIQUE_ID_BYTES, byte), true};
}

CommunicatorId IdentityOf(char byte) {
  return IdentityOfUniqueId(std::string(NCCL_UNIQUE_ID_BYTES, byte).data());
}

elastic::Position Open(const CommunicatorId& id, Epoch in_use, std::vector<Epoch> old = {}) {
  return {id, true, in_use, false, 0, {}, std::move(old)};
}
elastic::Position Closed(const CommunicatorId& id, std::vector<Epoch> old) {
  return {id, false, 0, false, 0, {}, std::move(old)};
}

class GroupChangeTest : public Stage {
 protected:
  GroupChangeTest() {
    Start({.build = seconds(20), .decision = seconds(10), .retire = milliseconds(0)});
  }
  void Change(const Program& program, Epoch epoch, char byte) {
    ASSERT_EQ(Prepare(epoch, {Grouped(program, byte)}), absl::OkStatus());
    core_->SwapNow(epoch);
  }
};

TEST_F(GroupChangeTest, PositionsAndCountersNameTheNewIdentity) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 1), ncclSuccess);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_EQ(Prepare(5, {Grouped(program, 'a')}), absl::OkStatus());
  EXPECT_THAT(core_->Positions(), ElementsAre(Open(kFirst, 0)));
  EXPECT_EQ(program.comm.id(), kFirst);
  core_->SwapNow(5);
  EXPECT_EQ(program.comm.id(), IdentityOf('a'));
  EXPECT_EQ(program.comm.current.load()->ranks.load(), 3);
  EXPECT_THAT(core_->Positions(),
              UnorderedElementsAre(Closed(kFirst, {0}), Open(IdentityOf('a'), 5)));
  EXPECT_EQ(core_->Counters(),
            std::vector<elastic::CommunicatorCounter>({{IdentityOf('a'), uint64_t{0}}}));
  core_->Retire({{0, kFirst}});
  ASSERT_TRUE(Eventually([&] { return Old().empty(); }));
  EXPECT_THAT(core_->Positions(), ElementsAre(Open(IdentityOf('a'), 5)));
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(GroupChangeTest, EachGenerationKeepsTheIdentityItWasBuiltWith) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 1), ncclSuccess);
  Change(program, 1, 'a');
  Change(program, 2, 'b');
  EXPECT_THAT(core_->Positions(),
              UnorderedElementsAre(Closed(kFirst, {0}), Closed(IdentityOf('a'), {1}),
                                   Open(IdentityOf('b'), 2)));
  core_->Retire({{1, IdentityOf('a')}});
  ASSERT_TRUE(Eventually([&] { return Old().size() == 1; }));
  EXPECT_THAT(Old(), ElementsAre(elastic::GenerationId{0, kFirst}));
  ASSERT_TRUE(RetireAll());
}

TEST_F(GroupChangeTest, PlannedSwapsUseTheNewIdentity) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Change(program, 1, 'a');
  EXPECT_THAT(WhyNot(2, {{kFirst, 2, 4}}), HasSubstr("does not exist in this process"));
  EXPECT_TRUE(absl::IsNotFound(
      Prepare(2, {{kFirst, 2, {0}, std::string(NCCL_UNIQUE_ID_BYTES, 'u'), false}})));
  Swap(program, 3, 2, 4);
  for (size_t i = 0; i < 6; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  EXPECT_EQ(program.comm.id(), IdentityOf('a'));
  EXPECT_THAT(core_->Positions(),
              UnorderedElementsAre(Closed(kFirst, {0}), Open(IdentityOf('a'), 3, {1})));
  EXPECT_THAT(program.OperationsOf(program.Real()), ElementsAre(1, 4, 5));
  ASSERT_TRUE(RetireAll());
}

TEST_F(GroupChangeTest, PendingSwapsOfTheEarlierGroupKeepItsIdentity) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 5, 9);
  Change(program, 2, 'a');
  EXPECT_THAT(core_->Positions(),
              UnorderedElementsAre(Closed(kFirst, {0, 1}), Open(IdentityOf('a'), 2)));
  ASSERT_TRUE(RetireAll());
}

TEST_F(GroupChangeTest, TheDestructionIsReportedWithTheNewIdentity) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Change(program, 1, 'a');
  program.Close();
  MutexLock lock(&events_.mutex);
  EXPECT_THAT(events_.destroyed, ElementsAre(IdentityOf('a')));
}

TEST_F(GroupChangeTest, ChildrenAreCountedFromZero) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  program.comm.children = 3;
  program.comm.shrinks[{0}] = 2;
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  core_->SwapNow(1);
  EXPECT_EQ(program.comm.id(), kFirst);
  EXPECT_EQ(program.comm.children.load(), 3u);
  EXPECT_EQ(program.comm.shrinks.size(), 1u);
  Change(program, 2, 'a');
  EXPECT_EQ(IdentityOfChild(program.comm.id(), program.comm.children.fetch_add(1), 7),
            IdentityOfChild(IdentityOf('a'), 0, 7));
  EXPECT_TRUE(program.comm.shrinks.empty());
}

TEST_F(GroupChangeTest, AnAbandonedChangeLeavesTheIdentity) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(Prepare(1, {Grouped(program, 'a')}), absl::OkStatus());
  core_->Abandon(1);
  EXPECT_EQ(program.comm.id(), kFirst);
  ASSERT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
  core_->SwapNow(2);
  EXPECT_EQ(program.comm.id(), kFirst);
  EXPECT_EQ(PositionOf(program).in_use, 2u);
}

TEST_F(GroupChangeTest, AJoinerHasItsFirstIdentityUntilTheBoundary) {
  {
    MutexLock lock(&events_.mutex);
    events_.joining = true;
  }
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(3, 2), ncclSuccess);
  ASSERT_EQ(Prepare(4, {Grouped(program, 'a')}), absl::OkStatus());
  EXPECT_NE(program.Real(), nullptr);
  EXPECT_EQ(program.comm.id(), kFirst);
  EXPECT_THAT(core_->Positions(), ElementsAre(Open(kFirst, 4)));
  core_->Abandon(4);
  EXPECT_EQ(program.comm.id(), kFirst);
  EXPECT_THAT(core_->Positions(), ElementsAre(Closed(kFirst, {})));
  ASSERT_EQ(Prepare(5, {Grouped(program, 'b')}), absl::OkStatus());
  EXPECT_EQ(program.Issue(0), ncclInvalidUsage);
  EXPECT_EQ(core_->Counters().at(0).communicator, kFirst);
  core_->SwapNow(5);
  EXPECT_EQ(program.comm.id(), IdentityOf('b'));
  EXPECT_THAT(core_->Positions(), ElementsAre(Open(IdentityOf('b'), 5)));
  EXPECT_EQ(program.Issue(1), ncclSuccess);
}

TEST_F(GroupChangeTest, AfterALossTheIdentityChangesAtTheBoundary) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  core_->AbortCurrent("member 7 was lost");
  EXPECT_EQ(program.comm.id(), kFirst);
  ASSERT_EQ(Prepare(1, {Grouped(program, 'a')}), absl::OkStatus());
  EXPECT_EQ(program.comm.id(), kFirst);
  core_->SwapNow(1);
  EXPECT_EQ(program.comm.id(), IdentityOf('a'));
  EXPECT_THAT(core_->Positions(), ElementsAre(Open(IdentityOf('a'), 1)));
  EXPECT_EQ(program.Issue(0), ncclSuccess);
}

TEST_F(GroupChangeTest, AShortUniqueIdIsRefused) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  EXPECT_THAT(Prepare(1, {{kFirst, 2, {0}, "short", true}}).ToString(),
              HasSubstr("unique id: bytes=5: must be at least 128"));
}

// Each generation takes 400 bytes while it is built, and 300 more once the program's operations
// have connected it.
TEST_F(GroupChangeTest, TheMeasuredMemoryStaysWithTheCommunicator) {
  std::atomic<int> connected{1};
  device_.SetFreeBytes([&connected] {
    const int live = FakeNccl::Get().Live();
    return static_cast<uint64_t>(10000 - 400 * live - 300 * std::min(live, connected.load()));
  });
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Change(program, 1, 'a');
  EXPECT_EQ(ValueOf(Counter::kShimBuildExpected), 700u);  // the program's creation took them
  ASSERT_EQ(Prepare(2, {Grouped(program, 'b')}), absl::OkStatus());
  EXPECT_EQ(ValueOf(Counter::kShimBuildExpected), 400u);
  core_->Abandon(2);
  ASSERT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 2; }));
  connected = 2;
  core_->Retire({{0, kFirst}});
  ASSERT_TRUE(Eventually([&] { return Old().empty(); }));
  ASSERT_EQ(Prepare(3, {Grouped(program, 'c')}), absl::OkStatus());
  EXPECT_EQ(ValueOf(Counter::kShimBuildExpected), 700u);
  core_->SwapNow(3);
  program.Close();
  // An unmeasured communicator is expected to take as much as the largest known one.
  Program other(core_.get(), 2);
  other.comm.current.store(FakeServices::Get()->new_generation(0, 2, 0));
  ncclResult_t result = ncclSuccess;
  ASSERT_EQ(core_->OnCreated(&other.comm, &result), 0);
  ASSERT_TRUE(Prepare(4, {BuildOf(other, 2, 0)}).ok());
  EXPECT_EQ(ValueOf(Counter::kShimBuildExpected), 0u);
  other.Close();
  // The test's end reads the free memory.
  device_.SetFreeBytes(10000);
}

TEST_F(GroupChangeTest, ClosingReleasesCapturedGenerationsOfEarlierGroups) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_EQ(Prepare(1, {Grouped(program, 'a')}), absl::OkStatus());
  AddPin(&program.comm, Pin::kGraph);  // too late to refuse the change
  core_->SwapNow(1);
  core_->Retire({{0, kFirst}});
  EXPECT_FALSE(Eventually([&] { return Old().empty(); }, milliseconds(50)));
  program.Close();
  EXPECT_TRUE(Eventually([&] { return Old().empty(); }));
  EXPECT_EQ(core_->counters().retired.load(), 1u);
}

// Under TSan this is a test of the reads.
TEST_F(GroupChangeTest, OtherThreadsReadWholeIdentitiesDuringChanges) {
  constexpr char kLast = 'p';
  std::set<CommunicatorId> known{kFirst};
  for (char byte = 'a'; byte <= kLast; ++byte) known.insert(IdentityOf(byte));
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  std::atomic<bool> ended{false};
  std::atomic<int> unknown{0};
  std::thread reader([&] {
    while (!ended.load()) {
      for (const elastic::CommunicatorCounter& counter : core_->Counters()) {
        if (!known.contains(counter.communicator)) ++unknown;
      }
      for (const elastic::Position& position : core_->Positions()) {
        if (!known.contains(position.communicator)) ++unknown;
      }
      if (!known.contains(program.comm.id())) ++unknown;
      if (!core_->Mint(program.comm.id()).ok()) ++unknown;
      std::this_thread::yield();
    }
  });
  Epoch epoch = 0;
  for (char byte = 'a'; byte <= kLast; ++byte) {
    Change(program, ++epoch, byte);
    EXPECT_EQ(program.Issue(epoch), ncclSuccess);
  }
  ended = true;
  reader.join();
  EXPECT_EQ(unknown.load(), 0);
  EXPECT_EQ(program.comm.id(), IdentityOf(kLast));
  EXPECT_TRUE(RetireAll());
}

}  // namespace
}  // namespace rewire::shim
