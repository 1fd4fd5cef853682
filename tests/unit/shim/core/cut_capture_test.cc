// Swaps at operations that the program captures into a CUDA graph. The generation is warm already,
// as on every device with room for one more kernel.
#include "shim/core/warm_up.h"
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CaptureTest : public Stage {
 protected:
  CaptureTest() {
    device_.SetResidentBlocks(128);
    Start({.build = seconds(20), .decision = seconds(10), .retire = milliseconds(0)});
    FakeServices::SetRegisters(false);
  }
  ~CaptureTest() override { FakeServices::SetRegisters(false); }
  // A swap whose warm operation has run during the build.
  void Swap(const Program& program, Epoch epoch, uint64_t cut) {
    const elastic::CommunicatorBuild build = BuildOf(program, 2, 0, std::string(kBeside));
    ASSERT_TRUE(Prepare(epoch, {build}).ok());
    ASSERT_EQ(WhyNot(epoch, {{program.comm.id(), cut, cut}}), "");
    core_->Decide(epoch, true);
  }
  // The program's two operations on stream 7, then an idle cut.
  void UseAndSwap(Program* program) {
    ASSERT_EQ(program->Create(2, 0), ncclSuccess);
    for (size_t i = 0; i < 2; ++i) ASSERT_EQ(program->Issue(i), ncclSuccess);
    Swap(*program, 1, 2);
    device_.TakeLog();
  }
};

TEST_F(CaptureTest, TheGraphWaitsForTheLastOperationOnAnotherStream) {
  Program program(core_.get(), 1);
  UseAndSwap(&program);
  device_.SetCapturing(8, true);
  EXPECT_EQ(program.Issue(100, 8), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 1u);
  EXPECT_THAT(device_.TakeLog(), ElementsAre("record 1 on 7", "wait 1 on 8"));
  EXPECT_EQ(core_->OnLastError(&program.comm), nullptr);
  // No graph has an operation of the old generation, and its end is known.
  ASSERT_TRUE(RetireAll());
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(CaptureTest, OnTheSameStreamNothingIsAddedToTheCapture) {
  Program program(core_.get(), 1);
  UseAndSwap(&program);
  device_.SetCapturing(7, true);
  EXPECT_EQ(program.Issue(100), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 1u);
  EXPECT_THAT(device_.TakeLog(), IsEmpty());
  // The end of its last operation is unknown, so the generation stays.
  ASSERT_FALSE(Old().empty());
  core_->Retire(Old());
  core_->ReleaseGraphs();
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
}

TEST_F(CaptureTest, AnUnusedCommunicatorSwapsInACapture) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 0);
  device_.SetCapturing(7, true);
  EXPECT_EQ(program.Issue(100), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 1u);
  ASSERT_TRUE(RetireAll());
}

TEST_F(CaptureTest, ACapturedLastOperationRecordsNoEvent) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_EQ(program.Issue(1), ncclSuccess);
  const elastic::CommunicatorBuild build = BuildOf(program, 2, 0, std::string(kBeside));
  ASSERT_TRUE(Prepare(1, {build}).ok());
  ASSERT_EQ(WhyNot(1, {{program.comm.id(), 4, 5}}), "");
  core_->Decide(1, true);
  ASSERT_EQ(program.Issue(2), ncclSuccess);
  ASSERT_EQ(program.Issue(3), ncclSuccess);
  device_.TakeLog();
  device_.SetCapturing(7, true);
  ASSERT_EQ(program.Issue(4), ncclSuccess);
  EXPECT_THAT(device_.TakeLog(), IsEmpty());
  device_.SetCapturing(7, false);
  ASSERT_EQ(program.Issue(5), ncclSuccess);
  EXPECT_THAT(device_.TakeLog(), ElementsAre("record 1 on 7"));
  EXPECT_EQ(PositionOf(program).in_use, 1u);
}

TEST_F(CaptureTest, TheNextSwapKeepsAGenerationWhoseEventIsInAGraph) {
  Program program(core_.get(), 1);
  UseAndSwap(&program);
  device_.SetCapturing(8, true);
  ASSERT_EQ(program.Issue(100, 8), ncclSuccess);
  device_.SetCapturing(8, false);
  Swap(program, 2, 3);
  ASSERT_EQ(program.Issue(101), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 2u);
  core_->Retire(Old());
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 2; }));
  core_->ReleaseGraphs();
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 1; }));
}

TEST_F(CaptureTest, TheFirstOperationAfterABoundaryMayBeCaptured) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  core_->SwapNow(1);
  device_.TakeLog();
  device_.SetCapturing(8, true);
  // Windows are made at this operation.
  FakeServices::SetRegisters(true);
  EXPECT_EQ(program.Issue(100, 8), ncclInvalidUsage);
  EXPECT_THAT(core_->OnLastError(&program.comm), HasSubstr("forbids the registration"));
  EXPECT_THAT(device_.TakeLog(), IsEmpty());
  FakeServices::SetRegisters(false);
  EXPECT_EQ(program.Issue(100, 8), ncclSuccess);
  EXPECT_EQ(core_->OnLastError(&program.comm), nullptr);
  EXPECT_THAT(device_.TakeLog(), ElementsAre("wait 1 on 8"));
}

TEST_F(CaptureTest, RegistrationsThatACaptureForbidsAreRefusedByName) {
  Program program(core_.get(), 1);
  UseAndSwap(&program);
  FakeServices::SetRegisters(true);
  device_.SetCapturing(8, true);
  EXPECT_EQ(program.Issue(100, 8), ncclInvalidUsage);
  EXPECT_THAT(device_.TakeLog(), IsEmpty());
  EXPECT_THAT(core_->OnLastError(&program.comm), HasSubstr("forbids the registration"));
  EXPECT_EQ(PositionOf(program).in_use, 0u);
  device_.SetCapturing(8, false);
  EXPECT_EQ(program.Issue(100, 8), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 1u);
}

}  // namespace
}  // namespace rewire::shim
