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

TEST_F(JoinerTest, WaitsAgainAfterAnAbandonedEpoch) {
  Program program(core_.get(), 1);
  std::thread application([&] { EXPECT_EQ(program.Create(3, 2), ncclSuccess); });
  ASSERT_TRUE(Prepare(4, {BuildOf(program, 3, 2)}).ok());
  application.join();
  core_->Abandon(4);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  EXPECT_EQ(program.Issue(0), ncclInvalidUsage);
  ASSERT_TRUE(Prepare(5, {BuildOf(program, 3, 2)}).ok());
  core_->SwapNow(5);
  EXPECT_EQ(program.Issue(0), ncclSuccess);
}

TEST_F(JoinerTest, CreationWithoutABuildFailsWithinItsLimit) {
  Start({.build = milliseconds(30), .decision = seconds(1), .retire = milliseconds(0)});
  Program blocking(core_.get(), 1);
  EXPECT_EQ(blocking.Create(3, 2), ncclRemoteError);
  Program polling(core_.get(), 2, false);
  EXPECT_EQ(polling.Create(3, 2), ncclInProgress);
}

TEST_F(JoinerTest, CreationInAStoppedProcessDoesNotWaitForABuild) {
  Program waiting(core_.get(), 1);
  Program polling(core_.get(), 2, false);
  EXPECT_EQ(polling.Create(3, 2), ncclInProgress);
  std::thread application([&] { EXPECT_EQ(waiting.Create(3, 2), ncclRemoteError); });
  ASSERT_TRUE(Eventually([&] {
    MutexLock lock(&events_.mutex);
    return events_.created.size() == 2;
  }));
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
