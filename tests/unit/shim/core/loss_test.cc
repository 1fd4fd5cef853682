// The end of all generations of a process after the loss of a member.
#include <algorithm>
#include <thread>

#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LossTest : public Stage {
 protected:
  std::vector<std::string> CallsSince(size_t begin) {
    MutexLock lock(&FakeNccl::Get().mutex);
    const auto& calls = FakeNccl::Get().calls;
    return {calls.begin() + static_cast<ptrdiff_t>(begin), calls.end()};
  }
};

TEST_F(LossTest, AbortsAllGenerationsInOneGroupAndUnblocksOperations) {
  Program a(core_.get(), 1);
  Program b(core_.get(), 2);
  ASSERT_EQ(a.Create(2, 0), ncclSuccess);            // 1
  ASSERT_EQ(b.Create(2, 0), ncclSuccess);            // 2
  ASSERT_TRUE(Prepare(1, {BuildOf(a, 2, 0)}).ok());  // 3
  {
    MutexLock lock(&FakeNccl::Get().mutex);
    FakeNccl::Get().operations_block = true;
  }
  const ncclComm_t real = a.Real();
  std::thread application([&] { EXPECT_EQ(a.Issue(1), ncclRemoteError); });
  ASSERT_TRUE(Eventually([&] { return a.OperationsOf(real).size() == 1; }));
  const size_t begin = CallsSince(0).size();
  EXPECT_EQ(core_->OnLastError(&a.comm), nullptr);
  core_->AbortCurrent("member 7 was lost");
  application.join();
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  std::vector<std::string> calls = CallsSince(begin);
  ASSERT_EQ(calls.size(), 5u);
  std::sort(calls.begin() + 1, calls.begin() + 4);
  EXPECT_THAT(calls, ElementsAre("group", "abort 1", "abort 2", "abort 3", "end"));
  // The error lasts until there is a new generation.
  EXPECT_EQ(a.Issue(2), ncclRemoteError);
  EXPECT_EQ(b.Issue(2), ncclRemoteError);
  EXPECT_STREQ(core_->OnLastError(&b.comm), "member 7 was lost");
  EXPECT_STREQ(core_->OnLastError(nullptr), "member 7 was lost");
  {
    MutexLock lock(&FakeNccl::Get().mutex);
    FakeNccl::Get().operations_block = false;
  }
  ASSERT_TRUE(Prepare(2, {BuildOf(a, 1, 0), BuildOf(b, 1, 0)}).ok());
  device_.TakeLog();
  core_->SwapNow(2);
  EXPECT_EQ(a.Issue(3), ncclSuccess);
  EXPECT_EQ(b.Issue(3), ncclSuccess);
  EXPECT_EQ(core_->OnLastError(&a.comm), nullptr);
  EXPECT_EQ(core_->OnLastError(nullptr), nullptr);
  // The swap does not wait for an aborted generation.
  EXPECT_THAT(device_.TakeLog(), IsEmpty());
}

TEST_F(LossTest, AbortsBlockingAndNonBlockingCommunicatorsInOneGroup) {
  Program blocking(core_.get(), 1);
  Program polling(core_.get(), 2, false);
  ASSERT_EQ(blocking.Create(2, 0), ncclSuccess);
  ASSERT_EQ(polling.Create(2, 0), ncclInProgress);
  const size_t begin = CallsSince(0).size();
  core_->AbortCurrent("member 7 was lost");
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  EXPECT_THAT(CallsSince(begin), ElementsAre("group", "abort 1", "abort 2", "end"));
}

TEST_F(LossTest, EndsACreationOfTheProgramBeforeFreeing) {
  FakeNccl::Get().init_blocks = true;
  Program program(core_.get(), 1);
  Program other(core_.get(), 2);
  std::thread application([&] { EXPECT_EQ(program.Create(2, 0), ncclRemoteError); });
  ASSERT_TRUE(Eventually([&] { return CallsSince(0).size() == 1; }));
  core_->AbortCurrent("member 7 was lost");
  application.join();
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  EXPECT_THAT(CallsSince(0), ElementsAre("init 1", "group", "abort 1", "end"));
}

TEST_F(LossTest, FirstCallAfterALossMayBeACreationWhichFailsAtOnce) {
  FakeNccl::Get().init_blocks = true;
  core_->AbortCurrent("member 7 was lost");
  Program program(core_.get(), 1);
  EXPECT_EQ(program.Create(2, 0), ncclRemoteError);
  EXPECT_THAT(CallsSince(0), IsEmpty());
  EXPECT_STREQ(core_->OnLastError(nullptr), "member 7 was lost");
  EXPECT_EQ(core_->LostBecause(), "");  // no generation was aborted
  FakeNccl::Get().Release();
  Program survivors(core_.get(), 2);
  EXPECT_EQ(survivors.Create(2, 0), ncclSuccess);
}

TEST_F(LossTest, CreationWithMoreRanksThanLivingMembersFailsAtOnce) {
  core_->SetLiving(2);
  core_->AbortCurrent("member 7 was lost");
  FakeServices::ReportLoss();
  FakeNccl::Get().init_blocks = true;
  Program all(core_.get(), 1);
  EXPECT_EQ(all.Create(3, 0), ncclRemoteError);
  EXPECT_THAT(CallsSince(0), IsEmpty());
  FakeNccl::Get().Release();
  Program survivors(core_.get(), 2);
  EXPECT_EQ(survivors.Create(2, 0), ncclSuccess);
}

TEST_F(LossTest, CreationBegunAfterALossEndsWithinItsLimit) {
  Start({.build = milliseconds(50)});
  FakeNccl::Get().init_blocks = true;
  core_->AbortCurrent("member 7 was lost");
  FakeServices::ReportLoss();
  Program program(core_.get(), 1);
  EXPECT_EQ(program.Create(2, 0), ncclRemoteError);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  EXPECT_THAT(core_->OnLastError(nullptr), ::testing::IsNull());  // the program has dropped it
  // A communicator without the lost member is not affected.
  FakeNccl::Get().Release();
  Program survivors(core_.get(), 2);
  ASSERT_EQ(survivors.Create(1, 0), ncclSuccess);
  Program late(core_.get(), 3);
  FakeNccl::Get().init_blocks = true;
  EXPECT_EQ(late.Create(2, 0), ncclRemoteError);
  EXPECT_EQ(survivors.Issue(0), ncclSuccess);
}

TEST_F(LossTest, LeavesACreationToAnUnknownNccl) {
  Start({}, /*abort_frees_at_group_end=*/false);
  FakeNccl::Get().init_blocks = true;
  Program program(core_.get(), 1);
  std::thread application([&] { EXPECT_EQ(program.Create(2, 0), ncclRemoteError); });
  ASSERT_TRUE(Eventually([&] { return CallsSince(0).size() == 1; }));
  core_->AbortCurrent("member 7 was lost");
  EXPECT_THAT(CallsSince(0), ElementsAre("init 1"));
  FakeNccl::Get().Release();
  application.join();
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
}

TEST_F(LossTest, ReleasesAThreadThatWaitsAtACut) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_EQ(program.Issue(1), ncclSuccess);
  std::thread application([&] { EXPECT_EQ(program.Issue(2), ncclRemoteError); });
  EXPECT_TRUE(Eventually([&] { return core_->counters().host_waits.load() == 1; }));
  core_->AbortCurrent("member 7 was lost");
  application.join();
}

TEST_F(LossTest, EndsABuildUnderWay) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  FakeNccl::Get().init_blocks = true;
  Answer<absl::Status> built;
  core_->Build(1, {BuildOf(program, 2, 0)}, Now() + seconds(100), built.Callback());
  ASSERT_TRUE(Eventually([&] { return CallsSince(0).size() == 2; }));
  core_->AbortCurrent("member 7 was lost");
  EXPECT_THAT(built.Wait()->ToString(), ::testing::HasSubstr("member 7 was lost"));
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
}

TEST_F(LossTest, AbortsGenerationsThatWaitForRetirement) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  core_->SwapNow(1);
  device_.SetPending(true);
  core_->Retire(Old());
  core_->AbortCurrent("member 7 was lost");
  device_.SetPending(false);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  EXPECT_EQ(core_->counters().retired.load(), 0u);
}

TEST_F(LossTest, AbortsEachPendingGenerationOnce) {
  Start({.build = seconds(20), .decision = seconds(10), .retire = milliseconds(0)});
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 5, 9);
  Swap(program, 2, 9, 13);
  ASSERT_TRUE(Prepare(3, {BuildOf(program, 2, 0)}).ok());
  core_->AbortCurrent("member 7 was lost");
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  EXPECT_THAT(PositionOf(program).pending, IsEmpty());
  EXPECT_EQ(core_->counters().aborted.load(), 4u);
  EXPECT_EQ(program.Issue(0), ncclRemoteError);
}

}  // namespace
}  // namespace rewire::shim
