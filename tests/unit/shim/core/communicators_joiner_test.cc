// The first generations of a process that joins a running job come from a build.
#include <thread>

#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::StrEq;

// The communicators of a process that joins a running job.
class JoinerTest : public Stage {
 protected:
  JoinerTest() {
    MutexLock lock(&events_.mutex);
    events_.joining = true;
  }
};

TEST_F(JoinerTest, FirstGenerationComesWithTheBuild) {
  Program program(core_.get(), 1);
  Answer<absl::Status> built;
  // The build may come first.
  core_->Build(4, {BuildOf(program, 3, 2)}, Now() + seconds(20), built.Callback());
  ASSERT_EQ(program.Create(3, 2), ncclSuccess);
  ASSERT_TRUE(built.Wait()->ok());
  EXPECT_THAT(Calls(), ElementsAre("init 1"));
  EXPECT_NE(program.Real(), nullptr);
  EXPECT_EQ(program.Issue(0), ncclInvalidUsage);
  core_->SwapNow(4);
  EXPECT_EQ(program.Issue(0), ncclSuccess);
}

// The leader prepares when the joiner has reported all communicators that the other members have.
TEST_F(JoinerTest, SeveralAreMadeBeforeTheBuild) {
  Program first(core_.get(), 1);
  Program second(core_.get(), 2);
  ASSERT_EQ(first.Create(3, 2), ncclSuccess);
  EXPECT_EQ(first.Issue(0), ncclInvalidUsage);
  ASSERT_EQ(second.Create(3, 2), ncclSuccess);
  std::thread application([&] { EXPECT_EQ(core_->AwaitFirst(&first.comm), ncclSuccess); });
  ASSERT_TRUE(Prepare(4, {BuildOf(first, 3, 2), BuildOf(second, 3, 2)}).ok());
  application.join();
  core_->SwapNow(4);
  EXPECT_EQ(first.Issue(0), ncclSuccess);
  EXPECT_EQ(second.Issue(0), ncclSuccess);
}

TEST_F(JoinerTest, WaitsAgainAfterAnAbandonedEpoch) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(3, 2), ncclSuccess);
  ASSERT_TRUE(Prepare(4, {BuildOf(program, 3, 2)}).ok());
  core_->Abandon(4);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  EXPECT_EQ(program.Issue(0), ncclInvalidUsage);
  ASSERT_TRUE(Prepare(5, {BuildOf(program, 3, 2)}).ok());
  core_->SwapNow(5);
  EXPECT_EQ(program.Issue(0), ncclSuccess);
}

TEST_F(JoinerTest, AWaitForABuildHasALimit) {
  Start({.build = milliseconds(30), .decision = seconds(1), .retire = milliseconds(0)});
  Program blocking(core_.get(), 1);
  EXPECT_EQ(blocking.Create(3, 2), ncclSuccess);
  EXPECT_EQ(core_->AwaitFirst(&blocking.comm), ncclRemoteError);
  Program polling(core_.get(), 2, false);
  EXPECT_EQ(polling.Create(3, 2), ncclInProgress);
}

TEST_F(JoinerTest, AStoppedProcessDoesNotWaitForABuild) {
  Program waiting(core_.get(), 1);
  Program polling(core_.get(), 2, false);
  EXPECT_EQ(polling.Create(3, 2), ncclInProgress);
  EXPECT_EQ(waiting.Create(3, 2), ncclSuccess);
  std::thread application([&] { EXPECT_EQ(core_->AwaitFirst(&waiting.comm), ncclRemoteError); });
  {
    MutexLock lock(&events_.mutex);
    events_.stopped = true;
  }
  core_->AbortCurrent("out of the job");
  application.join();
  // The error names either cause: the thread may not have begun to wait.
  EXPECT_THAT(core_->OnLastError(&waiting.comm),
              AnyOf(StrEq("out of the job"), StrEq("this process is not part of the job")));
  EXPECT_STREQ(core_->OnLastError(&polling.comm), "out of the job");
  // A communicator made afterwards fails in the same way.
  Program late(core_.get(), 3);
  EXPECT_EQ(late.Create(3, 2), ncclRemoteError);
}

}  // namespace
}  // namespace rewire::shim
