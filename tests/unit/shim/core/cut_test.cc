// Pledges, decisions and swaps at a cut.
#include <thread>

#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CutTest : public Stage {};

TEST_F(CutTest, SwapsBetweenTwoOperations) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  const ncclComm_t old = program.Real();
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 3, 5}}));
  core_->Decide(1, true);
  device_.TakeLog();
  for (size_t i = 1; i < 8; ++i) ASSERT_EQ(program.Issue(100 + i, i < 5 ? 7 : 8), ncclSuccess);
  EXPECT_EQ(HostWaits(program, 1), 0u);
  EXPECT_NE(program.Real(), old);
  EXPECT_THAT(program.OperationsOf(old), ElementsAre(0, 101, 102, 103, 104));
  // The warm operation at the warm index comes first.
  EXPECT_THAT(program.OperationsOf(program.Real()), ElementsAre(1, 105, 106, 107));
  EXPECT_THAT(device_.TakeLog(), ElementsAre("record 1 on 7", "record 1 on 7", "wait 1 on 8"));
  EXPECT_EQ(core_->counters().swaps.load(), 1u);
  EXPECT_EQ(core_->counters().host_waits.load(), 0u);
}

TEST_F(CutTest, WarmAndCutMayBeTheSameIndex) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 2}}));
  core_->Decide(1, true);
  for (size_t i = 0; i < 4; ++i) ASSERT_EQ(program.Issue(100 + i), ncclSuccess);
  EXPECT_EQ(HostWaits(program, 1), 0u);
  EXPECT_THAT(program.OperationsOf(program.Real()), ElementsAre(1, 102, 103));
}

TEST_F(CutTest, PledgeNeedsRoomForTwoOperations) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  for (size_t i = 0; i < 3; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  EXPECT_FALSE(Pledged(1, {{program.comm.id(), 4, 9}}));
  // A refused cut has no effect: no operation stops there.
  for (size_t i = 3; i < 12; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  EXPECT_TRUE(Pledged(1, {{program.comm.id(), 14, 19}}));
}

TEST_F(CutTest, RefusesAPledgeWithoutABuiltGeneration) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  EXPECT_FALSE(Pledged(1, {{program.comm.id(), 10, 20}}));
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  EXPECT_FALSE(Pledged(2, {{program.comm.id(), 10, 20}}));
  EXPECT_FALSE(Pledged(1, {{CommunicatorId{9, 9}, 10, 20}}));
  EXPECT_FALSE(Pledged(1, {{program.comm.id(), 30, 20}}));
  AddPin(&program.comm, Pin::kGraph);
  EXPECT_FALSE(Pledged(1, {{program.comm.id(), 10, 20}}));
}

TEST_F(CutTest, OneRefusalTakesAllPledgesBack) {
  Program a(core_.get(), 1);
  Program b(core_.get(), 2);
  ASSERT_EQ(a.Create(2, 0), ncclSuccess);
  ASSERT_EQ(b.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(a, 2, 0), BuildOf(b, 2, 0)}).ok());
  EXPECT_FALSE(Pledged(1, {{a.comm.id(), 10, 20}, {b.comm.id(), 1, 20}}));
  EXPECT_EQ(a.comm.stop_at.load(), kNoCut);
  EXPECT_EQ(b.comm.stop_at.load(), kNoCut);
}

TEST_F(CutTest, OperationAtUndecidedCutWaits) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  const ncclComm_t old = program.Real();
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  std::thread application([&] {
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(program.Issue(100 + i), ncclSuccess);
  });
  EXPECT_TRUE(Eventually([&] { return core_->counters().host_waits.load() == 1; }));
  EXPECT_THAT(program.OperationsOf(old), ElementsAre(100, 101));
  core_->Decide(1, true);
  application.join();
  EXPECT_EQ(HostWaits(program, 1), 1u);
  EXPECT_THAT(program.OperationsOf(old), ElementsAre(100, 101, 102));
}

TEST_F(CutTest, RefusalReleasesWaitingThread) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  const ncclComm_t old = program.Real();
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  std::thread application([&] {
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(program.Issue(100 + i), ncclSuccess);
  });
  EXPECT_TRUE(Eventually([&] { return core_->counters().host_waits.load() == 1; }));
  core_->Decide(1, false);
  application.join();
  EXPECT_EQ(program.Real(), old);
  EXPECT_THAT(program.OperationsOf(old), ElementsAre(100, 101, 102, 103, 104));
}

// A watchdog of the program closes the communicator.
TEST_F(CutTest, AnAbortFromAnotherThreadReleasesAWaitingThread) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  for (size_t i = 0; i < 2; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  std::thread application([&] { EXPECT_EQ(program.Issue(2), ncclInvalidUsage); });
  EXPECT_TRUE(Eventually([&] { return core_->counters().host_waits.load() == 1; }));
  core_->OnClosing(&program.comm, true);
  application.join();
  core_->Decide(1, true);  // has no effect
  ASSERT_TRUE(RetireAll());
}

TEST_F(CutTest, AbortsWithoutDecision) {
  Start({.build = seconds(20), .decision = milliseconds(20), .retire = milliseconds(0)});
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_EQ(program.Issue(1), ncclSuccess);
  EXPECT_EQ(program.Issue(2), ncclRemoteError);
  EXPECT_EQ(program.Issue(3), ncclRemoteError);
  {
    MutexLock lock(&events_.mutex);
    EXPECT_THAT(events_.undecided, ElementsAre(1));
  }
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
  // A decision that arrives too late has no effect.
  core_->Decide(1, true);
  EXPECT_FALSE(PositionOf(program).open);
  EXPECT_EQ(program.Issue(4), ncclRemoteError);
}

TEST_F(CutTest, DecisionDuringUndecidedCallbackApplies) {
  Start({.build = seconds(20), .decision = milliseconds(20), .retire = milliseconds(0)});
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  events_.on_undecided = [&] { core_->Decide(1, true); };
  for (size_t i = 0; i < 5; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  EXPECT_EQ(HostWaits(program, 1), 1u);
}

TEST_F(CutTest, TheStreamOfTheLastOperationMayBeDestroyed) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_EQ(program.Issue(0, 8), ncclSuccess);
  Swap(program, 1, 1, 1);  // the next operation
  device_.DestroyStreamOfProgram(8);
  EXPECT_EQ(program.Issue(1, 7), ncclSuccess);
  EXPECT_EQ(PositionOf(program).in_use, 1u);
  EXPECT_EQ(core_->OnLastError(&program.comm), nullptr);
  ASSERT_TRUE(RetireAll());
}

TEST_F(CutTest, ACaptureAtTheCutIsRefusedByName) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  core_->Decide(1, true);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_EQ(program.Issue(1), ncclSuccess);
  device_.SetCapturing(7, true);
  EXPECT_EQ(program.Issue(2), ncclInvalidUsage);
  const char* why = core_->OnLastError(&program.comm);
  ASSERT_NE(why, nullptr);
  EXPECT_THAT(why, HasSubstr("is in a CUDA graph capture, which forbids the first operation"));
  // After the capture the program goes on.
  device_.SetCapturing(7, false);
  EXPECT_EQ(program.Issue(2), ncclSuccess);
  EXPECT_EQ(core_->OnLastError(&program.comm), nullptr);
}

TEST_F(CutTest, AFailingWarmOperationEndsTheGenerations) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  core_->Decide(1, true);
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  ASSERT_EQ(program.Issue(1), ncclSuccess);
  {
    MutexLock lock(&FakeNccl::Get().mutex);
    FakeNccl::Get().operation_result = ncclSystemError;
  }
  EXPECT_EQ(program.Issue(2), ncclRemoteError);
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
}

// Non-blocking communicators whose operations need three polls before they are launched.
class NonBlockingCutTest : public CutTest {
 protected:
  // Polls between two operations like PyTorch, which polls until the launch has ended.
  static ncclResult_t Poll(const Program& program) {
    const NcclCalls nccl = FakeNccl::Calls();
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      EXPECT_EQ(nccl.CommGetAsyncError(program.Real(), &state), ncclSuccess);
    }
    return state;
  }
  static void Settle(Program* program) {
    ASSERT_EQ(Poll(*program), ncclSuccess);
    program->comm.current.load()->device.store(0);
  }
  static std::vector<std::string> TakeLaunches() {
    MutexLock lock(&FakeNccl::Get().mutex);
    return std::exchange(FakeNccl::Get().launches, {});
  }
  static void SetOperationPolls(int polls) {
    MutexLock lock(&FakeNccl::Get().mutex);
    FakeNccl::Get().operation_polls = polls;
  }
};

TEST_F(NonBlockingCutTest, TheWarmOperationIsLaunchedBeforeTheProgramsNext) {
  Program program(core_.get(), 1, false);
  ASSERT_EQ(program.Create(2, 0), ncclInProgress);  // real communicator 1
  Settle(&program);
  // Builds real communicator 2.
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0, std::string("\0\7\4", 3))}).ok());
  {
    MutexLock lock(&FakeNccl::Get().mutex);
    // SimulateEnd would launch the operation.
    EXPECT_THAT(FakeNccl::Get().simulated, IsEmpty());
  }
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  core_->Decide(1, true);
  SetOperationPolls(3);
  TakeLaunches();
  for (size_t i = 100; i < 104; ++i) ASSERT_EQ(program.Issue(i), ncclInProgress);
  // The program never polls here: the cut ended every launch but the last.
  EXPECT_THAT(TakeLaunches(), ElementsAre("1.100", "1.101", "settled 1", "2.1", "settled 2",
                                          "1.102", "settled 1", "2.103"));
}

// A peer may issue the two operations in the other order, or on two threads, and then needs this
// swap before it launches its part.
TEST_F(NonBlockingCutTest, ALaunchOnAnotherCommunicatorDoesNotHoldTheSwap) {
  for (const bool blocking : {true, false}) {
    SetOperationPolls(0);
    Program program(core_.get(), blocking ? 1 : 2, blocking);
    Program other(core_.get(), 3, false);
    ASSERT_EQ(program.Create(2, 0), blocking ? ncclSuccess : ncclInProgress);
    ASSERT_EQ(other.Create(2, 0), ncclInProgress);
    Settle(&program);
    Settle(&other);
    const Epoch epoch = blocking ? 1 : 2;
    ASSERT_TRUE(Prepare(epoch, {BuildOf(program, 2, 0)}).ok());
    ASSERT_TRUE(Pledged(epoch, {{program.comm.id(), 2, 4}}));
    core_->Decide(epoch, true);
    SetOperationPolls(1 << 30);
    ASSERT_EQ(other.Issue(500), ncclInProgress);
    SetOperationPolls(0);
    for (size_t i = 0; i < 5; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
    EXPECT_EQ(program.comm.current.load()->epoch, epoch);
  }
}

TEST_F(NonBlockingCutTest, AWarmOperationThatIsNeverLaunchedEndsTheGenerations) {
  Start({.build = milliseconds(50), .decision = seconds(1), .retire = milliseconds(0)});
  Program program(core_.get(), 1, false);
  ASSERT_EQ(program.Create(2, 0), ncclInProgress);
  Settle(&program);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  core_->Decide(1, true);
  for (size_t i = 0; i < 2; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  SetOperationPolls(1 << 30);
  EXPECT_EQ(program.Issue(2), ncclRemoteError);
  EXPECT_THAT(core_->OnLastError(&program.comm), ::testing::HasSubstr("REWIRE_BUILD_MS"));
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
}

TEST_F(NonBlockingCutTest, ALossEndsAWarmOperationThatIsNeverLaunched) {
  Program program(core_.get(), 1, false);
  ASSERT_EQ(program.Create(2, 0), ncclInProgress);
  Settle(&program);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  core_->Decide(1, true);
  for (size_t i = 0; i < 2; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  SetOperationPolls(1 << 30);
  TakeLaunches();
  std::thread application([&] { EXPECT_EQ(program.Issue(2), ncclRemoteError); });
  ASSERT_TRUE(Eventually([&] { return !TakeLaunches().empty(); }));
  core_->AbortCurrent("member 7 was lost");
  application.join();
  EXPECT_STREQ(core_->OnLastError(&program.comm), "member 7 was lost");
  EXPECT_TRUE(Eventually([] { return FakeNccl::Get().Live() == 0; }));
}

TEST_F(NonBlockingCutTest, AnAbortFromAnotherThreadEndsAWarmOperationThatIsNeverLaunched) {
  Program program(core_.get(), 1, false);
  ASSERT_EQ(program.Create(2, 0), ncclInProgress);
  Settle(&program);
  ASSERT_TRUE(Prepare(1, {BuildOf(program, 2, 0)}).ok());
  ASSERT_TRUE(Pledged(1, {{program.comm.id(), 2, 3}}));
  core_->Decide(1, true);
  for (size_t i = 0; i < 2; ++i) ASSERT_EQ(program.Issue(i), ncclSuccess);
  SetOperationPolls(1 << 30);
  TakeLaunches();
  std::thread application([&] { EXPECT_EQ(program.Issue(2), ncclInvalidUsage); });
  ASSERT_TRUE(Eventually([&] { return !TakeLaunches().empty(); }));
  core_->OnClosing(&program.comm, true);
  application.join();
  ASSERT_TRUE(RetireAll());
}

TEST_F(CutTest, RacesOfPledgeDecisionAndOperations) {
  Start({.build = seconds(20), .decision = seconds(10), .retire = milliseconds(0)});
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  std::atomic<bool> stop{false};
  std::atomic<size_t> issued{0};
  std::thread application([&] {
    while (!stop.load()) {
      EXPECT_EQ(program.Issue(1000 + issued.load()), ncclSuccess);
      issued.fetch_add(1);
      std::this_thread::yield();
    }
  });
  size_t refused = 0;
  for (Epoch epoch = 1; epoch <= 30; ++epoch) {
    const ncclComm_t old = program.Real();
    ASSERT_TRUE(Prepare(epoch, {BuildOf(program, 2, 0)}).ok());
    Cut cut;
    for (uint64_t margin = 4;; ++margin) {
      const uint64_t now = core_->Counters().at(0).issued;
      cut = {program.comm.id(), now + margin, now + margin + 3};
      if (Pledged(epoch, {cut})) break;
      ++refused;
    }
    if (epoch % 3 == 0) {
      core_->Decide(epoch, false);
      core_->Abandon(epoch);
      continue;
    }
    core_->Decide(epoch, true);
    ASSERT_TRUE(HostWaits(program, epoch).has_value());
    EXPECT_EQ(program.OperationsOf(old).back(), 1000 + cut.cut - 1) << "epoch " << epoch;
    ASSERT_TRUE(Eventually([&] { return program.OperationsOf(program.Real()).size() > 1; }));
    EXPECT_EQ(program.OperationsOf(program.Real()).at(1), 1000 + cut.cut) << "epoch " << epoch;
    ASSERT_TRUE(RetireAll());
  }
  stop.store(true);
  application.join();
  EXPECT_EQ(core_->counters().swaps.load(), 20u);
  program.Close();
}

}  // namespace
}  // namespace rewire::shim
