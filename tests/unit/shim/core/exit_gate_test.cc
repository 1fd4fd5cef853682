// The gate that keeps Rewire's threads out of NCCL at exit.
#include "shim/core/exit_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

int uses = 0;

TEST(ExitGateTest, CloseReturnsTheNumberOfThreadsInside) {
  ExitGate gate;
  std::atomic<bool> entered{false};
  std::atomic<bool> interrupted{false};
  std::thread blocked([&] {
    const ExitGate::Inside inside(&gate);
    EXPECT_TRUE(inside.ok());
    entered = true;
    EXPECT_TRUE(Eventually([&] { return interrupted.load(); }));
  });
  ASSERT_TRUE(Eventually([&] { return entered.load(); }));
  EXPECT_EQ(gate.Close(Now()), 1);
  EXPECT_EQ(gate.Close(Now() + seconds(20)), 0);  // at once
  interrupted = true;
  blocked.join();
}

TEST(ExitGateTest, AnInterruptionMayEnterWhileCloseWaits) {
  ExitGate gate;
  std::atomic<int> left{0};
  std::atomic<bool> entered{false};
  std::thread blocked([&] {
    const ExitGate::Inside inside(&gate);
    entered = true;
    EXPECT_TRUE(Eventually([&] { return left.load() > 0; }));
  });
  ASSERT_TRUE(Eventually([&] { return entered.load(); }));
  std::thread helper([&] {
    const ExitGate::Inside inside(&gate, ExitGate::Purpose::kInterruption);
    EXPECT_TRUE(inside.ok());
    ++left;
  });
  EXPECT_EQ(gate.Close(Now() + seconds(20)), 0);
  blocked.join();
  helper.join();
}

TEST(ExitGateTest, NobodyEntersAfterClose) {
  ExitGate gate;
  EXPECT_EQ(gate.Close(Now()), 0);
  const ExitGate::Inside inside(&gate);
  EXPECT_FALSE(inside.ok());
  const ExitGate::Inside interruption(&gate, ExitGate::Purpose::kInterruption);
  EXPECT_FALSE(interruption.ok());
}

TEST(ExitGateTest, TellsOfTheFirstUseBeforeAndAfterIt) {
  ExitGate gate;
  uses = 0;
  gate.SetUsed([] { ++uses; });
  {
    const ExitGate::Inside first(&gate);
    EXPECT_EQ(uses, 1);
    const ExitGate::Inside second(&gate);
    EXPECT_EQ(uses, 1);
  }
  EXPECT_EQ(uses, 2);
  const ExitGate::Inside third(&gate);
  EXPECT_EQ(uses, 2);
}

}  // namespace
}  // namespace rewire::shim
