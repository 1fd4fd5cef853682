// Decided swaps that the program has not reached: they stay, are replaced or queued, over any
// number of further changes, and every generation is ended exactly once.
#include <thread>

#include "shim/core/warm_up.h"
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PendingTest : public Stage {
 protected:
  PendingTest() {
    Start({.build = seconds(20), .decision = seconds(10), .retire = milliseconds(0)});
  }
  static void Use(VirtualCommunicator* comm, Collective function) {
    comm->seen[static_cast<unsigned>(function)][0].store(1);
  }
};

TEST_F(PendingTest, IdleCommunicatorSwapsAtItsNextOperationAfterManyRebuilds) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  for (size_t i = 0; i < 3; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  const ncclComm_t old = program.Real();
  for (Epoch epoch = 1; epoch <= 5; ++epoch) {
    Swap(program, epoch, 3, 3);
    const elastic::Position position = PositionOf(program);
    EXPECT_EQ(position.in_use, 0u);
    EXPECT_THAT(position.pending, ElementsAre(elastic::PendingSwap{epoch, 3, 3}));
    // The generation that the swap replaced is destroyed unused.
    ASSERT_TRUE(RetireAll());
    EXPECT_EQ(FakeNccl::Get().Live(), 2) << "epoch " << epoch;
  }
  EXPECT_EQ(program.Issue(100), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 5u);
  EXPECT_NE(program.Real(), old);
  EXPECT_THAT(program.OperationsOf(program.Real()), ElementsAre(1, 100));
  EXPECT_EQ(core_->counters().host_waits.load(), 0u);
  EXPECT_TRUE(Eventually([&] { return events_.moved.load() > 0; }));
  ASSERT_TRUE(RetireAll());
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(PendingTest, UnusedCommunicatorSwapsAtItsFirstOperation) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 0, 0);
  EXPECT_EQ(program.Issue(7), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 1u);
}

TEST_F(PendingTest, AnUpdateSwapsACommunicatorThatHasNotReachedItsCut) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0, 7), ncclSuccess);
  Swap(program, 1, 8, 12);
  Swap(program, 2, 12, 16);
  core_->SwapPending(2);
  EXPECT_EQ(PositionOf(program).in_use, 2u);
  EXPECT_THAT(PositionOf(program).pending, IsEmpty());
  device_.TakeLog();
  ASSERT_EQ(program.Issue(100, 8), ncclSuccess);
  EXPECT_THAT(device_.TakeLog(), ElementsAre("wait 2 on 8"));
  EXPECT_THAT(program.OperationsOf(program.Real()), ElementsAre(100));
  // The count goes on at the cut, and a later cut follows.
  core_->SwapPending(2);
  EXPECT_EQ(program.comm.issued.load(), 17u);
  Swap(program, 3, 20, 22);
  for (size_t i = 17; i < 24; ++i) ASSERT_EQ(program.Issue(i, 8), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 3u);
  ASSERT_TRUE(RetireAll());
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(PendingTest, FirstOperationFollowsTheLastOperationOnAnotherStream) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0, 7), ncclSuccess);
  Swap(program, 1, 1, 1);
  device_.TakeLog();
  ASSERT_EQ(program.Issue(1, 8), ncclSuccess);
  EXPECT_THAT(device_.TakeLog(), ElementsAre("record 1 on 7", "wait 1 on 8", "record 1 on 8"));
}

TEST_F(PendingTest, ReplacedSwapKeepsItsOwnEvent) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 4, 4);
  // The last operation before the cut: its event belongs to the pending generation.
  for (size_t i = 0; i < 4; ++i) ASSERT_EQ(program.Issue(i, 7), ncclSuccess);
  Swap(program, 2, 4, 4);
  ASSERT_TRUE(RetireAll());
  device_.TakeLog();
  ASSERT_EQ(program.Issue(4, 8), ncclSuccess);
  EXPECT_THAT(device_.TakeLog(), ElementsAre("record 2 on 7", "wait 2 on 8", "record 2 on 8"));
}

// The count of operations does not show yet that this member has begun. Another member may still
// replace the swap, and would never issue the operation that this member's stream waits for.
TEST_F(PendingTest, ASwapThatHasBegunIsNotReplacedBeforeItsFirstOperation) {
  for (const std::string& usage : {std::string(), std::string(kBeside)}) {
    Start({.build = seconds(20), .decision = seconds(10), .retire = milliseconds(0)});
    Program program(core_.get(), 1);
    ASSERT_EQ(program.Create(2, 0), ncclSuccess);
    ASSERT_EQ(program.Issue(0), ncclSuccess);
    ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0, usage)}).ok());
    ASSERT_TRUE(Pledged(1, {{program.comm.id(), 1, 1}}));
    core_->Decide(1, true);
    // The program's thread has passed the cut, and has not entered the generation yet.
    ASSERT_EQ(core_->AtCut(&program.comm, {nullptr, 0}), ncclSuccess);
    ASSERT_EQ(PositionOf(program).in_use, 1u);
    ASSERT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
    EXPECT_THAT(WhyNot(2, {{program.comm.id(), 1, 1}}), HasSubstr("has begun the swap of epoch 1"));
    core_->Abandon(2);
    ASSERT_EQ(program.Issue(1), ncclSuccess);
    Swap(program, 3, 2, 2);
    ASSERT_EQ(program.Issue(2), ncclSuccess);
    EXPECT_EQ(PositionOf(program).in_use, 3u);
  }
}

TEST_F(PendingTest, ALaterCutIsQueuedAfterThePendingOne) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  const ncclComm_t first = program.Real();
  Swap(program, 1, 3, 5);
  Swap(program, 2, 5, 7);
  EXPECT_THAT(PositionOf(program).pending,
              ElementsAre(elastic::PendingSwap{1, 3, 5}, elastic::PendingSwap{2, 5, 7}));
  std::vector<ncclComm_t> reals;
  for (size_t i = 0; i < 10; ++i) {
    ASSERT_EQ(program.Issue(100 + i), ncclSuccess);
    reals.push_back(program.Real());
  }
  EXPECT_THAT(program.OperationsOf(first), ElementsAre(100, 101, 102, 103, 104));
  EXPECT_THAT(program.OperationsOf(reals[5]), ElementsAre(1, 105, 106));
  EXPECT_THAT(program.OperationsOf(program.Real()), ElementsAre(1, 107, 108, 109));
  EXPECT_THAT(PositionOf(program).old, ElementsAre(0, 1));
  ASSERT_TRUE(RetireAll());
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(PendingTest, AGroupPastSeveralCutsSwapsInTheirOrder) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 3, 5);
  Swap(program, 2, 5, 7);
  const ncclComm_t first = program.Real();
  program.comm.issued.store(20);  // a group that closed past all of them
  ASSERT_EQ(program.Issue(100), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 2u);
  EXPECT_THAT(program.OperationsOf(first), IsEmpty());
  EXPECT_THAT(program.OperationsOf(program.Real()), ElementsAre(1, 100));
  ASSERT_TRUE(RetireAll());
}

TEST_F(PendingTest, AnEarlierCutReplacesAllPendingSwaps) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 10, 14);
  Swap(program, 2, 14, 18);
  Swap(program, 3, 0, 0);
  EXPECT_THAT(PositionOf(program).pending, ElementsAre(elastic::PendingSwap{3, 0, 0}));
  EXPECT_THAT(PositionOf(program).old, ElementsAre(1, 2));
  ASSERT_EQ(program.Issue(5), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 3u);
  ASSERT_TRUE(RetireAll());
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(PendingTest, ASwapThatTheProgramHasBegunIsNotReplaced) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 2, 9);
  for (size_t i = 0; i < 3; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  ASSERT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
  EXPECT_THAT(WhyNot(2, {{program.comm.id(), 5, 9}}), HasSubstr("crosses the pending swap"));
  EXPECT_EQ(WhyNot(2, {{program.comm.id(), 9, 12}}), "");
}

TEST_F(PendingTest, AtTheWarmIndexASwapThatHasBegunIsNotReplacedByAnIdleCut) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 2, 9);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_EQ(program.Issue(1), ncclSuccess);
  {
    MutexLock lock(&FakeNccl::Get().mutex);
    FakeNccl::Get().operations_block = true;
  }
  ASSERT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
  std::thread application([&] { EXPECT_EQ(program.Issue(2), ncclRemoteError); });
  // Inside the warm-up operation the thread is in no generation, and nothing was counted.
  ASSERT_TRUE(Eventually([&] { return FakeNccl::Get().Blocked() == 1; }));
  EXPECT_THAT(WhyNot(2, {{program.comm.id(), 2, 2}}), HasSubstr("has begun the swap of epoch 1"));
  core_->AbortCurrent("the end");
  application.join();
}

TEST_F(PendingTest, AnIdleCutIsRefusedWhileAThreadIsInside) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  program.comm.current.load()->fixed.fetch_add(1);
  EXPECT_THAT(WhyNot(1, {{program.comm.id(), 0, 0}}), HasSubstr("inside the communicator"));
  EXPECT_EQ(program.comm.stop_at.load(), kNoCut);
  program.comm.current.load()->fixed.fetch_sub(1);
  EXPECT_EQ(WhyNot(1, {{program.comm.id(), 0, 0}}), "");
}

TEST_F(PendingTest, AnIdleCutIsRefusedAfterAnOperation) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  EXPECT_THAT(WhyNot(1, {{program.comm.id(), 0, 0}}), HasSubstr("has already issued operation 0"));
}

TEST_F(PendingTest, AnIdleCutIsRefusedAfterASendOrReceive) {
  for (const Collective function : {Collective::kSend, Collective::kRecv}) {
    Program program(core_.get(), 1);
    ASSERT_EQ(program.Create(2, 0), ncclSuccess);
    ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
    Use(&program.comm, function);
    EXPECT_TRUE(PositionOf(program).point_to_point);
    EXPECT_THAT(WhyNot(1, {{program.comm.id(), 0, 0}}), HasSubstr("point-to-point"));
    EXPECT_EQ(WhyNot(1, {{program.comm.id(), 2, 6}}), "");
  }
}

TEST_F(PendingTest, EveryRefusalNamesItsReason) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  const CommunicatorId id = program.comm.id();
  EXPECT_THAT(WhyNot(1, {{id, 10, 20}}), HasSubstr("no generation was built for epoch 1"));
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  EXPECT_THAT(WhyNot(2, {{id, 10, 20}}), HasSubstr("no generation was built for epoch 2"));
  EXPECT_THAT(WhyNot(1, {{id, 30, 20}}), HasSubstr("must not be after the cut"));
  EXPECT_THAT(WhyNot(1, {{id, 1, 20}}), HasSubstr("fewer than 2 are left before 1"));
  const std::optional<elastic::CutRefusal> other = core_->Pledge(1, {{CommunicatorId{9, 9}, 1, 1}});
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->communicator, (CommunicatorId{9, 9}));
  EXPECT_THAT(other->reason, HasSubstr("does not exist in this process"));
  AddPin(&program.comm, Pin::kGraph);
  EXPECT_THAT(WhyNot(1, {{id, 10, 20}}), HasSubstr("captured into a CUDA graph"));
  core_->AbortCurrent("member 7 was lost");
  EXPECT_THAT(WhyNot(1, {{id, 10, 20}}), HasSubstr("member 7 was lost"));
}

TEST_F(PendingTest, ThreadThatReachesAnUndecidedIdleCutWaits) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  for (size_t i = 0; i < 3; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  Swap(program, 1, 3, 3);
  ASSERT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
  ASSERT_EQ(WhyNot(2, {{program.comm.id(), 3, 3}}), "");
  std::thread application([&] { EXPECT_EQ(program.Issue(100), ncclSuccess); });
  EXPECT_TRUE(Eventually([&] { return core_->counters().host_waits.load() == 1; }));
  EXPECT_EQ(PositionOf(program).in_use, 0u);
  core_->Decide(2, true);
  application.join();
  EXPECT_EQ(HostWaits(program, 2), 1u);
}

TEST_F(PendingTest, PendingSwapBeforeAnUndecidedCutHolds) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 0, 0);
  ASSERT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
  ASSERT_EQ(WhyNot(2, {{program.comm.id(), 0, 0}}), "");
  std::thread application([&] { EXPECT_EQ(program.Issue(100), ncclSuccess); });
  EXPECT_TRUE(Eventually([&] { return core_->counters().host_waits.load() == 1; }));
  core_->Abandon(2);
  application.join();
  EXPECT_EQ(PositionOf(program).in_use, 1u);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 2; }));
  ASSERT_TRUE(RetireAll());
  EXPECT_EQ(FakeNccl::Get().Live(), 1);
}

TEST_F(PendingTest, AbandonedEpochKeepsPendingSwapsOfEarlierEpochs) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 5, 9);
  ASSERT_TRUE(Prepare(2, {BuildOf(program, 2, 0)}).ok());
  core_->Abandon(2);
  core_->Abandon(1);
  EXPECT_THAT(PositionOf(program).pending, ElementsAre(elastic::PendingSwap{1, 5, 9}));
  for (size_t i = 0; i < 12; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 1u);
}

TEST_F(PendingTest, ClosedCommunicatorDropsItsPendingGenerations) {
  const int generations = FakeServices::live_generations();
  {
    Program program(core_.get(), 1);
    ASSERT_EQ(program.Create(2, 0), ncclSuccess);
    for (size_t i = 0; i < 3; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
    Swap(program, 1, 3, 3);
    ASSERT_EQ(program.Issue(3), ncclSuccess);
    Swap(program, 2, 8, 12);
    Swap(program, 3, 12, 16);
    program.Close();
    const std::vector<elastic::Position> left = core_->Positions();
    ASSERT_EQ(left.size(), 1u);
    EXPECT_FALSE(left[0].open);
    EXPECT_THAT(left[0].old, ElementsAre(0));
    ASSERT_TRUE(RetireAll());
  }
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  EXPECT_TRUE(Eventually([&] { return device_.live_events() == 0; }));
  EXPECT_TRUE(Eventually([&] { return FakeServices::live_generations() == generations; }));
}

TEST_F(PendingTest, RacesOfIdleCutsAndOperations) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  std::atomic<bool> stop{false};
  std::thread application([&] {
    for (size_t i = 0; !stop.load(); ++i) {
      EXPECT_EQ(program.Issue(1000 + i), ncclSuccess);
      if (i % 7 == 0) std::this_thread::yield();
    }
  });
  size_t taken = 0;
  for (Epoch epoch = 1; epoch <= 200; ++epoch) {
    ASSERT_TRUE(Prepare(epoch, {BuildOf(program, 2, 0)}).ok());
    const uint64_t next = program.comm.issued.load();
    const ncclComm_t old = program.Real();
    if (!Pledged(epoch, {{program.comm.id(), next, next}})) {
      core_->Abandon(epoch);
      continue;
    }
    ++taken;
    core_->Decide(epoch, true);
    ASSERT_TRUE(HostWaits(program, epoch).has_value());
    // No operation at or beyond the cut went to the earlier generation.
    const std::vector<size_t> operations = program.OperationsOf(old);
    if (!operations.empty()) {
      EXPECT_LT(operations.back(), 1000 + next);
    }
    ASSERT_TRUE(RetireAll());
  }
  stop.store(true);
  application.join();
  EXPECT_GT(taken, 0u);
}

}  // namespace
}  // namespace rewire::shim
