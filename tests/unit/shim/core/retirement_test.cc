// The destruction of generations that are out of use.
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RetirementTest : public Stage {
 protected:
  RetirementTest() {
    Start({.build = seconds(20), .decision = seconds(1), .retire = milliseconds(0)});
  }
  // Makes the communicator and swaps it: its first generation is then out of use.
  void Outdate(Program* program) {
    ASSERT_EQ(program->Create(2, 0), ncclSuccess);
    ASSERT_EQ(program->Issue(0), ncclSuccess);
    ASSERT_TRUE(Prepare(1, {BuildOf(*program, 2, 0)}).ok());
    core_->SwapNow(1);
  }
  // The destruction ends only when the count of the generation's threads is lowered again.
  Generation* DestroyWithAThreadInside(Program* program) {
    if (program->Create(2, 0) != ncclSuccess) return nullptr;
    Generation* const old = program->comm.current.load();
    old->fixed.fetch_add(1);
    if (!Prepare(1, {BuildOf(*program, 2, 0)}).ok()) return nullptr;
    core_->SwapNow(1);
    core_->Retire(Old());
    return old;
  }
};

TEST_F(RetirementTest, WaitsForTheLastOperation) {
  Program program(core_.get(), 1);
  Outdate(&program);
  device_.SetPending(true);
  const int before = device_.queries();
  core_->Retire(Old());
  ASSERT_TRUE(Eventually([&] { return device_.queries() > before + 3; }));
  EXPECT_EQ(FakeNccl::Get().Live(), 2);
  device_.SetPending(false);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
  EXPECT_TRUE(Eventually([&] { return core_->counters().retired.load() == 1; }));
}

TEST_F(RetirementTest, WaitsForAThreadInsideTheGeneration) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Generation* old = program.comm.current.load();
  old->fixed.fetch_add(1);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  core_->SwapNow(1);
  core_->Retire(Old());
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  // Under ASan this read is the test.
  EXPECT_NE(old->Real(), nullptr);
  old->fixed.fetch_sub(1);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
}

// A free beside a build's first operation can deadlock the device (epoch_build.h).
TEST_F(RetirementTest, ABuildWaitsForDestructions) {
  Program program(core_.get(), 1);
  Outdate(&program);
  device_.SetPending(true);
  core_->Retire(Old());
  Answer<absl::Status> built;
  core_->Build(2, {BuildOf(program, 2, 0)}, Now() + seconds(20), built.Callback());
  const int before = device_.queries();
  ASSERT_TRUE(Eventually([&] { return device_.queries() > before + 20; }));
  EXPECT_FALSE(built.there());
  device_.SetPending(false);
  EXPECT_TRUE(built.Wait()->ok());
  EXPECT_THAT(Calls(), ElementsAre("init 1", "init 2", "finalize 1", "destroy 1", "init 3"));
}

// The program's last operation on the old generation may take long.
TEST_F(RetirementTest, ABuildPostponesADestructionThatWaits) {
  Program program(core_.get(), 1);
  Outdate(&program);
  device_.SetPending(true);
  core_->Retire(Old());
  FakeNccl::Get().init_blocks = true;
  Answer<absl::Status> built;
  core_->Build(2, {BuildOf(program, 2, 0)}, Now() + seconds(4), built.Callback());
  ASSERT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 3; }));
  device_.SetPending(false);
  EXPECT_FALSE(
      Eventually([this] { return core_->counters().retired.load() > 0; }, milliseconds(50)));
  FakeNccl::Get().Release();
  EXPECT_TRUE(built.Wait()->ok());
  EXPECT_TRUE(Eventually([this] { return core_->counters().retired.load() == 1; }));
  core_->Abandon(2);
}

// A destruction may wait for a peer that never comes.
TEST_F(RetirementTest, ABuildIsGivenUpBesideADestruction) {
  Program program(core_.get(), 1);
  Generation* const old = DestroyWithAThreadInside(&program);
  ASSERT_NE(old, nullptr);
  EXPECT_THAT(Prepare(2, {BuildOf(program, 2, 0)}, milliseconds(100)).ToString(),
              HasSubstr("still being destroyed"));
  old->fixed.fetch_sub(1);
  EXPECT_TRUE(Prepare(3, {BuildOf(program, 2, 0)}).ok());
  core_->Abandon(3);
}

TEST_F(RetirementTest, AnEndlessDestructionDoesNotRefuseBuildsWithoutEnd) {
  core_.reset();
  Start({.build = milliseconds(300), .decision = seconds(1), .retire = milliseconds(0)});
  Program program(core_.get(), 1);
  Generation* const old = DestroyWithAThreadInside(&program);
  ASSERT_NE(old, nullptr);
  Epoch epoch = 2;
  EXPECT_FALSE(Prepare(epoch, {BuildOf(program, 2, 0)}, milliseconds(50)).ok());
  EXPECT_TRUE(Eventually(
      [&] { return Prepare(++epoch, {BuildOf(program, 2, 0)}, milliseconds(50)).ok(); }));
  core_->Abandon(epoch);
  old->fixed.fetch_sub(1);
}

TEST_F(RetirementTest, NothingBeginsDuringTheExit) {
  {
    Program program(core_.get(), 1);
    Outdate(&program);
    device_.SetPending(true);
    core_->Retire(Old());
    core_->OnExit();
    device_.SetPending(false);
    EXPECT_THAT(Prepare(2, {BuildOf(program, 2, 0)}).ToString(),
                HasSubstr("the process is ending"));
    EXPECT_FALSE(
        Eventually([this] { return core_->counters().retired.load() > 0; }, milliseconds(50)));
    EXPECT_THAT(Calls(), ElementsAre("init 1", "init 2"));
  }
  core_.reset();
  FakeServices::ForgetGenerations();
}

TEST_F(RetirementTest, ABuildEndsThePauseBeforeADestruction) {
  core_.reset();
  Start({.build = seconds(20), .decision = seconds(1), .retire = milliseconds(3'600'000)});
  Program program(core_.get(), 1);
  Outdate(&program);
  core_->Retire(Old());
  EXPECT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
  EXPECT_EQ(core_->counters().retired.load(), 1u);
  core_->Abandon(2);
}

// An operation was captured between the decision of a swap and its cut. The graph launches kernels
// of the old generation at any later time.
class CapturedTest : public RetirementTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(captured_.Create(2, 0), ncclSuccess);  // 1
    ASSERT_EQ(other_.Create(2, 0), ncclSuccess);     // 2
    Swap(captured_, 1, 2, 3);                        // 3
    AddPin(&captured_.comm, Pin::kGraph);
    for (size_t i = 0; i < 5; ++i) ASSERT_EQ(captured_.Issue(i), ncclSuccess);
    Swap(other_, 2, 0, 0);  // 4
    ASSERT_EQ(other_.Issue(0), ncclSuccess);
    core_->Retire({{0, captured_.comm.id()}, {0, other_.comm.id()}});
    ASSERT_TRUE(Eventually([&] { return core_->counters().retired.load() == 1; }));
    EXPECT_EQ(FakeNccl::Get().Live(), 3);  // the graph's generation does not delay the other one
    // The count rises before the end of the destruction.
    const std::vector<elastic::GenerationId> captured = {{0, captured_.comm.id()}};
    EXPECT_TRUE(Eventually([&] { return Old() == captured; }));
  }
  void TearDown() override {
    other_.Close();
    RetirementTest::TearDown();
  }
  Program captured_{core_.get(), 1};
  Program other_{core_.get(), 2};
};

TEST_F(CapturedTest, IsKeptUntilTheGraphsAreReleased) {
  core_->ReleaseGraphs();
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 2; }));
  EXPECT_TRUE(Eventually([&] { return Old().empty(); }));
  captured_.Close();
}

TEST_F(CapturedTest, IsKeptUntilTheCommunicatorIsDestroyed) {
  captured_.Close();
  EXPECT_TRUE(Eventually([&] { return core_->counters().retired.load() == 2; }));
  EXPECT_TRUE(Eventually([&] { return Old().empty(); }));
}

TEST_F(RetirementTest, FreesAGenerationWhoseDeviceIsGone) {
  const int before = FakeServices::live_generations();
  {
    Program program(core_.get(), 1);
    ASSERT_EQ(program.Create(2, 0), ncclSuccess);
    ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
    core_->SwapNow(1);
    EXPECT_EQ(FakeServices::live_generations(), before + 2);
    device_.Lose();
    ASSERT_TRUE(RetireAll());
    EXPECT_EQ(FakeServices::live_generations(), before + 1);
    EXPECT_EQ(core_->counters().retired.load(), 0u);
  }
}

TEST_F(RetirementTest, LeavesNothingWhenAllCommunicatorsAreClosed) {
  const int generations = FakeServices::live_generations();
  {
    Program program(core_.get(), 1);
    ASSERT_EQ(program.Create(2, 0), ncclSuccess);
    for (Epoch epoch = 1; epoch <= 5; ++epoch) {
      ASSERT_TRUE(Prepare(epoch, {BuildOf(program, 2, 0)}).ok());
      core_->SwapNow(epoch);
      ASSERT_EQ(program.Issue(epoch), ncclSuccess);
    }
  }
  ASSERT_TRUE(RetireAll());
  EXPECT_EQ(FakeNccl::Get().Live(), 0);
  EXPECT_TRUE(Eventually([&] { return device_.live_events() == 0; }));
  EXPECT_EQ(FakeServices::live_generations(), generations);
}

TEST_F(RetirementTest, DestroysGenerationsInTheGivenOrder) {
  Program a(core_.get(), 1);
  Program b(core_.get(), 2);
  ASSERT_EQ(a.Create(2, 0), ncclSuccess);  // 1
  ASSERT_EQ(b.Create(2, 0), ncclSuccess);  // 2
  Swap(a, 1, 0, 0);                        // 3
  Swap(b, 2, 0, 0);                        // 4
  ASSERT_EQ(a.Issue(0), ncclSuccess);
  ASSERT_EQ(b.Issue(0), ncclSuccess);
  device_.SetPending(true);
  core_->Retire({{0, b.comm.id()}});
  core_->Retire({{0, a.comm.id()}, {7, a.comm.id()}, {1, a.comm.id()}});
  device_.SetPending(false);
  ASSERT_TRUE(Eventually([&] { return Old().empty(); }));
  MutexLock lock(&FakeNccl::Get().mutex);
  std::vector<std::string> destroyed;
  for (const std::string& call : FakeNccl::Get().calls) {
    if (call.starts_with("destroy")) destroyed.push_back(call);
  }
  // The current generation was also named, and stays.
  EXPECT_THAT(destroyed, ElementsAre("destroy 2", "destroy 1"));
}

}  // namespace
}  // namespace rewire::shim
