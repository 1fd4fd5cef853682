// Several ranks of one communicator in this process: they are built, pledged and destroyed
// together, and each passes the cut by itself.
#include <thread>

#include "reconfig/world/identity.h"
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Ranks 2 and 3 of a communicator of four ranks, on two devices.
class SeveralRanksTest : public Stage {
 protected:
  void TearDown() override { device_.MakeCurrent(nullptr); }
  void Create(bool blocking = true) {
    for (int i = 0; i < 2; ++i) {
      device_.MakeCurrent(device_.ContextOf(i));
      ranks_[i] = std::make_unique<Program>(core_.get(), 1, blocking);
      ASSERT_EQ(ranks_[i]->Create(4, 2 + i), blocking ? ncclSuccess : ncclInProgress);
    }
    device_.MakeCurrent(nullptr);
  }
  static elastic::CommunicatorBuild Both(const std::string& usage = "") {
    return {kId, 4, {2, 3}, std::string(NCCL_UNIQUE_ID_BYTES, 'u') + usage};
  }
  // Builds, pledges and decides one swap.
  void SwapBoth(Epoch epoch, uint64_t warm, uint64_t cut) {
    ASSERT_TRUE(Prepare(epoch, {Both()}).ok());
    ASSERT_EQ(WhyNot(epoch, {{kId, warm, cut}}), "");
    core_->Decide(epoch, true);
  }
  void ExpectNoStop() {
    for (const auto& rank : ranks_) EXPECT_EQ(rank->comm.stop_at.load(), kNoCut);
  }
  static std::vector<std::string> TakeCalls() {
    MutexLock lock(&FakeNccl::Get().mutex);
    return std::exchange(FakeNccl::Get().calls, {});
  }

  static constexpr CommunicatorId kId{1, 1};
  std::unique_ptr<Program> ranks_[2];
};

TEST_F(SeveralRanksTest, EachRankIsReported) {
  Create();
  {
    MutexLock lock(&events_.mutex);
    ASSERT_EQ(events_.created.size(), 2u);
    EXPECT_THAT(events_.created[0].held, ElementsAre(2u));
    EXPECT_THAT(events_.created[1].held, ElementsAre(3u));
    EXPECT_FALSE(events_.created[1].pinned);
  }
  for (const auto& rank : ranks_) rank->Close();
  MutexLock lock(&events_.mutex);
  EXPECT_THAT(events_.destroyed, ElementsAre(kId, kId));
}

TEST_F(SeveralRanksTest, APinOfOneRankPinsTheCommunicatorUntilItEnds) {
  Create();
  AddPin(&ranks_[0]->comm, Pin::kGraph);
  core_->OnPinned(&ranks_[0]->comm);
  EXPECT_THAT(Prepare(1, {Both()}).ToString(), HasSubstr("CUDA graph"));
  core_->OnPinned(&ranks_[1]->comm);
  ranks_[0]->Close();
  MutexLock lock(&events_.mutex);
  EXPECT_THAT(events_.pinned, ElementsAre(HasSubstr("CUDA graph"), HasSubstr("CUDA graph"), ""));
}

TEST_F(SeveralRanksTest, RanksOfBothModesPinTheCommunicator) {
  Program blocking(core_.get(), 1);
  Program polling(core_.get(), 1, false);
  ASSERT_EQ(blocking.Create(2, 0), ncclSuccess);
  ASSERT_EQ(polling.Create(2, 1), ncclInProgress);
  MutexLock lock(&events_.mutex);
  EXPECT_THAT(events_.created.back().reason, HasSubstr("blocking"));
}

TEST_F(SeveralRanksTest, OneGroupBuildsAllRanks) {
  Create();
  TakeCalls();
  ASSERT_TRUE(Prepare(1, {Both(std::string("\0\7\4", 3))}).ok());
  EXPECT_THAT(TakeCalls(), ElementsAre("group", "init 3", "init 4", "end", "group", "simulate"));
  MutexLock lock(&FakeNccl::Get().mutex);
  std::vector<int> built;
  for (const auto& [handle, comm] : FakeNccl::Get().comms) {
    if (comm->number > 2) built.push_back(comm->rank);
  }
  EXPECT_THAT(built, ::testing::UnorderedElementsAre(2, 3));
  EXPECT_EQ(FakeNccl::Get().simulated.size(), 2u);  // once for each rank
}

TEST_F(SeveralRanksTest, NonBlockingRanksSettleOneAfterTheOther) {
  FakeNccl::Get().polls = 3;
  Create(false);
  EXPECT_TRUE(Prepare(1, {Both()}).ok());
}

TEST_F(SeveralRanksTest, TheFirstOperationOfAllRanksRunsBesideTheProgramsOwn) {
  device_.SetResidentBlocks(64);  // one communicator of each device, and one more
  Create();
  ranks_[0]->RecordSend();
  const auto minted = core_->Mint(kId);
  ASSERT_TRUE(minted.ok());
  EXPECT_EQ(minted->substr(NCCL_UNIQUE_ID_BYTES, 3), "\xff\xff\xff");
  device_.AddToMemory({0b0100, 0, 0b1000, 0});  // 0 to 2, and 2 to 3
  ASSERT_TRUE(Prepare(1, {{kId, 4, {2, 3}, *minted}}).ok());
  EXPECT_EQ(device_.live_streams(), 0);
  {
    MutexLock lock(&FakeNccl::Get().mutex);
    EXPECT_THAT(FakeNccl::Get().sends, ElementsAre("0 to 2", "2 to 3", "2 to 3"));
  }
  EXPECT_EQ(core_->counters().warmed_beside.load(), 1u);
}

TEST_F(SeveralRanksTest, ABuildForOtherRanksIsTriedAgain) {
  Create();
  const absl::Status status = Prepare(1, {{kId, 4, {2}, std::string(NCCL_UNIQUE_ID_BYTES, 'u')}});
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("has 2 ranks in this process, not 1"));
}

TEST_F(SeveralRanksTest, ACancelledBuildInterruptsAllRanks) {
  Create();
  FakeNccl::Get().init_blocks = true;
  Answer<absl::Status> built;
  core_->Build(1, {Both()}, Now() + seconds(100), built.Callback());
  ASSERT_TRUE(Eventually([&] { return Calls().size() == 6; }));
  core_->Abandon(1);
  EXPECT_FALSE(built.Wait()->ok());
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 2; }));
}

TEST_F(SeveralRanksTest, ADestroyedRankEndsTheBuildOfAll) {
  Create();
  FakeNccl::Get().init_blocks = true;
  Answer<absl::Status> built;
  core_->Build(1, {Both()}, Now() + seconds(100), built.Callback());
  ASSERT_TRUE(Eventually([&] { return Calls().size() == 6; }));
  ranks_[0]->Close();
  EXPECT_THAT(built.Wait()->ToString(), HasSubstr("destroyed by the program"));
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
  EXPECT_EQ(ranks_[1]->Issue(100), ncclSuccess);
}

TEST_F(SeveralRanksTest, EachRankPassesTheCutAtItsOwnOperation) {
  Create();
  const ncclComm_t old[2] = {ranks_[0]->Real(), ranks_[1]->Real()};
  SwapBoth(1, 3, 5);
  for (size_t i = 0; i < 8; ++i) ASSERT_EQ(ranks_[0]->Issue(100 + i, 7), ncclSuccess);
  EXPECT_THAT(ranks_[0]->OperationsOf(ranks_[0]->Real()), ElementsAre(1, 105, 106, 107));
  EXPECT_EQ(ranks_[1]->Real(), old[1]);
  // The communicator is where its last rank is, and its counter is that of the first.
  EXPECT_EQ(PositionOf(*ranks_[0]).in_use, 0u);
  EXPECT_THAT(PositionOf(*ranks_[0]).pending, ElementsAre(elastic::PendingSwap{1, 3, 5}));
  EXPECT_THAT(Old(), IsEmpty());
  EXPECT_EQ(core_->Counters().size(), 1u);
  EXPECT_EQ(core_->Counters().at(0).issued, 8u);
  for (size_t i = 0; i < 8; ++i) ASSERT_EQ(ranks_[1]->Issue(100 + i, 8), ncclSuccess);
  EXPECT_THAT(ranks_[1]->OperationsOf(old[1]), ElementsAre(100, 101, 102, 103, 104));
  EXPECT_THAT(ranks_[1]->OperationsOf(ranks_[1]->Real()), ElementsAre(1, 105, 106, 107));
  EXPECT_EQ(HostWaits(*ranks_[0], 1), 0u);
}

TEST_F(SeveralRanksTest, OneRankTooFarTakesThePledgesOfAllBack) {
  Create();
  ASSERT_TRUE(Prepare(1, {Both()}).ok());
  for (size_t i = 0; i < 3; ++i) ASSERT_EQ(ranks_[1]->Issue(i), ncclSuccess);
  EXPECT_THAT(WhyNot(1, {{kId, 4, 6}}), HasSubstr("has issued 3 operations"));
  ExpectNoStop();
  EXPECT_TRUE(Pledged(1, {{kId, 5, 6}}));
}

// One thread issues the operations of both ranks, so the wait of one rank holds both up.
TEST_F(SeveralRanksTest, OneThreadWaitsForTheDecision) {
  Create();
  ASSERT_TRUE(Prepare(1, {Both()}).ok());
  ASSERT_TRUE(Pledged(1, {{kId, 2, 3}}));
  std::thread application([&] {
    for (size_t i = 0; i < 5; ++i) {
      for (const auto& rank : ranks_) EXPECT_EQ(rank->Issue(100 + i), ncclSuccess);
    }
  });
  EXPECT_TRUE(Eventually([&] { return core_->counters().host_waits.load() == 1; }));
  core_->Decide(1, true);
  application.join();
  EXPECT_EQ(core_->counters().swaps.load(), 2u);
  // The second rank waits only where the decision reaches it after the first rank went on.
  EXPECT_GE(HostWaits(*ranks_[0], 1), 1u);
}

TEST_F(SeveralRanksTest, OneGroupDestroysAllRanks) {
  Create();
  SwapBoth(1, 0, 0);
  for (const auto& rank : ranks_) ASSERT_EQ(rank->Issue(100), ncclSuccess);
  TakeCalls();
  EXPECT_THAT(Old(), ElementsAre(elastic::GenerationId{0, kId}));
  EXPECT_TRUE(RetireAll());
  EXPECT_THAT(TakeCalls(), ElementsAre("group", "finalize 1", "finalize 2", "end", "group",
                                       "destroy 1", "destroy 2", "end"));
  EXPECT_EQ(core_->counters().retired.load(), 2u);
}

TEST_F(SeveralRanksTest, AFailedRankLetsAllBeAborted) {
  Create();
  const ncclComm_t old = ranks_[1]->Real();
  SwapBoth(1, 0, 0);
  for (const auto& rank : ranks_) ASSERT_EQ(rank->Issue(100), ncclSuccess);
  {
    MutexLock lock(&FakeNccl::Get().mutex);
    FakeNccl::Get().Of(old)->error = ncclRemoteError;
  }
  TakeCalls();
  EXPECT_TRUE(RetireAll());
  EXPECT_THAT(TakeCalls(), ElementsAre("group", "abort 1", "abort 2", "end"));
  EXPECT_EQ(core_->counters().aborted.load(), 2u);
}

TEST_F(SeveralRanksTest, AllRanksGetTheIdentityOfAnotherGroup) {
  Create();
  elastic::CommunicatorBuild build = Both();
  build.grouped = true;
  const CommunicatorId next = IdentityOfUniqueId(build.unique_id.data());
  ASSERT_TRUE(Prepare(1, {build}).ok());
  core_->SwapNow(1);
  for (const auto& rank : ranks_) {
    EXPECT_EQ(rank->comm.id(), next);
    EXPECT_EQ(rank->Issue(100), ncclSuccess);
  }
  EXPECT_EQ(PositionOf(*ranks_[0]).in_use, 1u);
  EXPECT_THAT(Old(), ElementsAre(elastic::GenerationId{0, kId}));
  TakeCalls();
  EXPECT_TRUE(RetireAll());
  EXPECT_EQ(TakeCalls().size(), 8u);  // one group destroys both ranks
  for (const auto& rank : ranks_) rank->Close();
  MutexLock lock(&events_.mutex);
  EXPECT_THAT(events_.destroyed, ElementsAre(next, next));
}

TEST_F(SeveralRanksTest, AGenerationIsKeptWhileOneRankUsesIt) {
  Create();
  SwapBoth(1, 0, 0);
  ASSERT_EQ(ranks_[0]->Issue(100), ncclSuccess);
  core_->Retire({{5, kId}});  // unknown
  EXPECT_THAT(Old(), IsEmpty());
  ASSERT_EQ(ranks_[1]->Issue(100), ncclSuccess);
  EXPECT_TRUE(RetireAll());
}

TEST_F(SeveralRanksTest, ALossEndsAllRanks) {
  Create();
  ASSERT_TRUE(Prepare(1, {Both()}).ok());
  core_->AbortCurrent("member 7 was lost");
  for (const auto& rank : ranks_) EXPECT_EQ(rank->Issue(100), ncclRemoteError);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
}

TEST_F(SeveralRanksTest, MemoryIsCountedOnEachDevice) {
  Create();
  uint64_t free_bytes = 1000;
  // Each rank takes 100 bytes of its device; before and after every build the same queries come.
  device_.SetFreeBytes([&, asked = 0]() mutable {
    const bool after = asked++ % 6 >= 4;
    return free_bytes - (after ? 100 : 0);
  });
  ASSERT_TRUE(Prepare(1, {Both()}).ok());
  core_->Abandon(1);
  free_bytes = 99;
  EXPECT_THAT(Prepare(2, {Both()}).ToString(), HasSubstr("bytes=100: must be at most the 99 free"));
}

TEST_F(SeveralRanksTest, TheMemoryOfEveryDeviceIsCheckedFirst) {
  device_.SetFreeBytes([left = uint64_t{10000}]() mutable { return left -= 100; });
  Program first(core_.get(), 1);
  ASSERT_EQ(first.Create(2, 0), ncclSuccess);
  device_.MakeCurrent(device_.ContextOf(1));
  Program second(core_.get(), 2);
  ASSERT_EQ(second.Create(2, 0), ncclSuccess);
  device_.SetFreeBytes(
      [this] { return device_.CurrentContext() == device_.ContextOf(1) ? 99 : 1000; });
  TakeCalls();
  EXPECT_THAT(Prepare(1, {BuildOf(first, 2, 0), BuildOf(second, 2, 0)}).ToString(),
              HasSubstr("bytes=100: must be at most the 99 free"));
  EXPECT_THAT(TakeCalls(), IsEmpty());
}

}  // namespace
}  // namespace rewire::shim
