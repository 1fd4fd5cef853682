// A build is refused when its generations do not fit into the device's memory.
#include <algorithm>
#include <atomic>

#include "reconfig/base/counters.h"
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::HasSubstr;

using BuilderMemoryTest = Stage;
TEST_F(BuilderMemoryTest, RefusesABuildThatDoesNotFitWithTheFigures) {
  Program program(core_.get(), 1);
  device_.SetFreeBytes(1000);
  // The first generation takes 400, and its connections take 200.
  program.comm.current.store(FakeServices::Get()->new_generation(0, 2, 0));
  ncclResult_t result = ncclSuccess;
  ASSERT_EQ(core_->OnCreated(&program.comm, &result), 0);
  uint64_t before = core_->FreeMemory(&program.comm);
  device_.SetFreeBytes(600);
  core_->OnTookMemory(&program.comm, before);
  before = core_->FreeMemory(&program.comm);
  device_.SetFreeBytes(400);
  core_->OnTookMemory(&program.comm, before);
  const std::string text = Prepare(1, {BuildOf(program, 2, 0)}).ToString();
  EXPECT_THAT(text, HasSubstr("bytes=600"));
  EXPECT_THAT(text, HasSubstr("400 free bytes"));
  EXPECT_EQ(FakeNccl::Get().Live(), 0);
  program.Close();
}

// The program's first communicator took 1000 bytes, most of them once for all communicators. The
// others were not measured, as after ncclCommSplit(). Each generation takes 400.
class MeasureTest : public Stage {
 protected:
  absl::Status Rebuild(int64_t free_bytes) {
    device_.SetFreeBytes(5000);
    MakeFirst(&world_);
    device_.SetFreeBytes(4000);
    core_->OnTookMemory(&world_.comm, 5000);
    MakeFirst(&left_);
    MakeFirst(&right_);
    device_.SetFreeBytes([free_bytes] {
      return static_cast<uint64_t>(free_bytes - int64_t{400} * FakeNccl::Get().Live());
    });
    return Prepare(1, {BuildOf(world_, 2, 0), BuildOf(left_, 2, 0), BuildOf(right_, 2, 0)});
  }
  void TearDown() override {
    for (Program* p : {&world_, &left_, &right_}) p->Close();
    Stage::TearDown();
  }

 private:
  void MakeFirst(Program* program) {
    program->comm.current.store(FakeServices::Get()->new_generation(0, 2, 0));
    ncclResult_t result = ncclSuccess;
    ASSERT_EQ(core_->OnCreated(&program->comm, &result), 0);
  }

  Program world_{core_.get(), 1}, left_{core_.get(), 2}, right_{core_.get(), 3};
};

TEST_F(MeasureTest, TheCountersSayWhatWasExpectedAndWhatWasTaken) {
  ASSERT_EQ(Rebuild(5000), absl::OkStatus());
  EXPECT_EQ(ValueOf(Counter::kShimBuildExpected), 1000u);
  EXPECT_EQ(ValueOf(Counter::kShimBuildTaken), 1200u);
}

TEST_F(MeasureTest, FirstCommunicatorIsNoMeasureForOthers) {
  EXPECT_EQ(Rebuild(1200), absl::OkStatus());
}

TEST_F(MeasureTest, StopsWhereTheRestDoesNotFit) {
  const std::string text = Rebuild(1199).ToString();
  EXPECT_THAT(text, HasSubstr("device memory: bytes=400"));
  EXPECT_THAT(text, HasSubstr("399 free bytes"));
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
}

// Each generation takes 400 bytes while it is built, and 300 more once the program's operations
// have connected it.
TEST_F(BuilderMemoryTest, ExpectsWhatTheDestroyedGenerationGaveBack) {
  std::atomic<int> connected{1};
  device_.SetFreeBytes([&connected] {
    const int live = FakeNccl::Get().Live();
    return static_cast<uint64_t>(10000 - 400 * live - 300 * std::min(live, connected.load()));
  });
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 0, 0);
  EXPECT_EQ(ValueOf(Counter::kShimBuildTaken), 400u);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  connected = 2;
  ASSERT_TRUE(RetireAll());
  connected = 1;
  Swap(program, 2, 1, 1);
  EXPECT_EQ(ValueOf(Counter::kShimBuildExpected), 700u);
  EXPECT_EQ(ValueOf(Counter::kShimBuildTaken), 400u);
  program.Close();
  // The test's end reads the free memory.
  device_.SetFreeBytes(10000);
}

}  // namespace
}  // namespace rewire::shim
