// The waits for NCCL's launches on non-blocking communicators.
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

// A non-blocking communicator with a chain that the core does not know.
class LaunchesTest : public Stage {
 protected:
  void SetUp() override {
    ASSERT_EQ(program_.Create(2, 0), ncclInProgress);
    chain_ = std::make_shared<Chain>(&program_.comm, nullptr);
    MutexLock lock(&chain_->mutex);
    chain_->current = std::make_unique<Link>();
    chain_->current->generation = program_.comm.current.load();
  }
  void TearDown() override {
    program_.Close();
    Stage::TearDown();
  }
  Generation* generation() { return program_.comm.current.load(); }
  void SetPollsLeft(int polls) {
    MutexLock lock(&FakeNccl::Get().mutex);
    FakeNccl::Get().Of(program_.Real())->polls_left = polls;
  }

  Program program_{core_.get(), 1, false};
  std::shared_ptr<Chain> chain_;
  const NcclCalls nccl_ = FakeNccl::Calls();
  Launches launches_{&nccl_};
};

TEST_F(LaunchesTest, PollsUntilTheOperationIsLaunchedOrTheDeadline) {
  SetPollsLeft(3);
  EXPECT_EQ(launches_.Await(chain_.get(), generation(), Now() + seconds(20)), ncclSuccess);
  SetPollsLeft(1 << 30);
  EXPECT_EQ(launches_.Await(chain_.get(), generation(), Now()), ncclInProgress);
}

TEST_F(LaunchesTest, DoesNotPollWhileAThreadIsInsideNccl) {
  SetPollsLeft(0);
  generation()->callers.Enter();
  EXPECT_EQ(launches_.Await(chain_.get(), generation(), Now()), ncclInProgress);
  generation()->callers.Leave();
  EXPECT_EQ(launches_.Await(chain_.get(), generation(), Now()), ncclSuccess);
}

TEST_F(LaunchesTest, EndsWhenTheCommunicatorIsLost) {
  SetPollsLeft(1 << 30);
  {
    MutexLock lock(&chain_->mutex);
    chain_->lost = true;
  }
  EXPECT_EQ(launches_.Await(chain_.get(), generation(), Now() + seconds(20)), ncclRemoteError);
}

}  // namespace
}  // namespace rewire::shim
