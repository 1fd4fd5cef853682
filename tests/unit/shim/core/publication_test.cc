// Generations that are published at an update boundary.
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using PublicationTest = Stage;

TEST_F(PublicationTest, BoundarySwapsToAnotherSizeAndRestartsTheCounter) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 1), ncclSuccess);
  for (size_t i = 0; i < 3; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  ASSERT_TRUE(Prepare(5, {BuildOf(program, 4, 3)}).ok());
  device_.TakeLog();
  core_->SwapNow(5);
  EXPECT_EQ(program.comm.current.load()->ranks.load(), 4);
  EXPECT_EQ(program.comm.current.load()->rank.load(), 3);
  EXPECT_EQ(core_->Counters().at(0).issued, 0u);
  ASSERT_EQ(program.Issue(10, 8), ncclSuccess);
  ASSERT_EQ(program.Issue(11, 8), ncclSuccess);
  // The event follows the last operation on its stream; only the first operation waits.
  EXPECT_THAT(device_.TakeLog(), ElementsAre("record 1 on 7", "wait 1 on 8"));
  EXPECT_EQ(program.comm.stop_at.load(), kNoCut);
}

// The program's thread makes its windows on the new generation with all other members.
TEST_F(PublicationTest, AGenerationThatTheProgramHasEnteredAtTheBoundaryIsNotReplaced) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(5, {BuildOf(program, 2, 0)}).ok());
  core_->SwapNow(5);
  // The program's thread has called in, and has not entered the generation yet.
  ASSERT_EQ(core_->AtCut(&program.comm, {nullptr, 0}), ncclSuccess);
  ASSERT_TRUE(Prepare(6, {BuildOf(program, 2, 0)}).ok());
  EXPECT_THAT(WhyNot(6, {{program.comm.id(), 0, 0}}),
              ::testing::HasSubstr("has begun the swap of epoch 5"));
  EXPECT_EQ(WhyNot(6, {{program.comm.id(), 3, 5}}), "");
  core_->Decide(6, true);
  for (size_t i = 0; i < 7; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 6u);
}

TEST_F(PublicationTest, BoundaryClosesACommunicatorWithoutANewGeneration) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 1), ncclSuccess);
  core_->SwapNow(5);
  EXPECT_EQ(program.Issue(0), ncclInvalidUsage);
  ASSERT_TRUE(RetireAll());
  EXPECT_EQ(FakeNccl::Get().Live(), 0);
}

TEST_F(PublicationTest, BoundaryReplacesEveryPendingSwap) {
  Start({.build = seconds(20), .decision = seconds(10), .retire = milliseconds(0)});
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 5, 9);
  Swap(program, 2, 9, 13);
  ASSERT_TRUE(Prepare(3, {BuildOf(program, 4, 1)}).ok());
  core_->SwapNow(3);
  const elastic::Position position = PositionOf(program);
  EXPECT_EQ(position.in_use, 3u);
  EXPECT_THAT(position.pending, IsEmpty());
  EXPECT_THAT(position.old, ElementsAre(0, 1, 2));
  for (size_t i = 0; i < 20; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 3u);
  ASSERT_TRUE(RetireAll());
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(PublicationTest, AfterABoundaryACutMayPrecedeTheFirstOperation) {
  Start({.build = seconds(20), .decision = seconds(10), .retire = milliseconds(0)});
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  core_->SwapNow(1);
  device_.SetPending(true);
  Swap(program, 2, 0, 0);
  ASSERT_EQ(program.Issue(1, 8), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 2u);
  device_.SetPending(false);
  ASSERT_TRUE(RetireAll());
}

}  // namespace
}  // namespace rewire::shim
