#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

#include "reconfig/world/identity.h"
#include "shim/core/build_turn.h"
#include "shim/core/memory_ledger.h"
#include "shim/core/pins.h"
#include "shim/core/thread_priority.h"
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

TEST(MemoryLedgerTest, SumsWhatItKnowsAndTakesTheLargestForTheNext) {
  MemoryLedger ledger;
  const CommunicatorId a{1, 1};
  const CommunicatorId b{2, 2};
  const CommunicatorId c{3, 3};
  EXPECT_EQ(ledger.Expected(std::vector{a, b}), 0u);
  using Maker = MemoryLedger::Maker;
  ledger.Record(a, Maker::kProgram, 100, 70);
  EXPECT_EQ(ledger.Expected(std::vector{a, c}), 30u);
  ledger.Record(a, Maker::kBuilder, 100, 70);
  ledger.Record(b, Maker::kProgram, 100, 90);
  EXPECT_EQ(ledger.Expected(std::vector{a, b}), 40u);
  EXPECT_EQ(ledger.Expected(std::vector{a, c}), 30u);
  EXPECT_EQ(ledger.Expected(std::vector{c, a}), 60u);
  EXPECT_TRUE(ledger.Check(std::vector{a, b}, 40).ok());
  EXPECT_FALSE(ledger.Check(std::vector{a, b}, 39).ok());
  ledger.Record(a, Maker::kBuilder, 100, 120);  // another thread freed memory meanwhile
  EXPECT_EQ(ledger.Expected(std::vector{a, b}), 10u);
  ledger.Forget(b);
  EXPECT_EQ(ledger.Expected(std::vector{b}), 0u);
}

TEST(BuildTurnTest, KnowsWhetherAnotherRanAtTheSameTime) {
  const auto turns = std::make_shared<BuildTurns>();
  { EXPECT_TRUE(BuildTurn(turns).Alone()); }
  {
    const BuildTurn first(turns);
    EXPECT_TRUE(first.Alone());
    { EXPECT_FALSE(BuildTurn(turns).Alone()); }
    EXPECT_FALSE(first.Alone());
  }
  EXPECT_TRUE(BuildTurn(turns).Alone());
}

TEST(IdentityTest, DiffersByEveryInput) {
  ncclUniqueId one{};
  ncclUniqueId two{};
  two.internal[127] = 1;
  EXPECT_EQ(IdentityOfUniqueId(&one), IdentityOfUniqueId(&one));
  EXPECT_NE(IdentityOfUniqueId(&one), IdentityOfUniqueId(&two));
  EXPECT_NE(IdentityOfUniqueId(&one), kUpdateBoundary);
  const CommunicatorId parent = IdentityOfUniqueId(&two);
  EXPECT_NE(IdentityOfChild(parent, 0, 0), IdentityOfChild(parent, 1, 0));
  EXPECT_NE(IdentityOfChild(parent, 0, 0), IdentityOfChild(parent, 0, 1));
  EXPECT_NE(IdentityOfChild(parent, 0, 0), parent);
  const int first[] = {0};
  const int second[] = {1};
  EXPECT_NE(IdentityOfShrunk(parent, 0, first), IdentityOfShrunk(parent, 0, second));
  EXPECT_NE(IdentityOfShrunk(parent, 0, first), IdentityOfShrunk(parent, 1, first));
}

TEST(PinsTest, NamesEveryBit) {
  EXPECT_EQ(DescribePins(0), "");
  EXPECT_NE(DescribePins(1 | 16).find("; "), std::string::npos);
}

using ThreadPriorityTest = Stage;
TEST_F(ThreadPriorityTest, ThreadsMadeByABuilderGetTheirsBack) {
  std::thread builder([] {
    const int base = OwnNiceness();
    LowPriority priority;
    priority.Lower();
    if (!MayRaisePriority()) {
      EXPECT_EQ(OwnNiceness(), base + 1);
      return;
    }
    ASSERT_EQ(OwnNiceness(), 15);
    std::atomic<bool> stop{false};
    std::atomic<pid_t> id{0};
    std::thread child([&] {
      id.store(gettid());
      while (!stop.load()) std::this_thread::yield();
    });
    EXPECT_TRUE(Eventually([&] { return id.load() != 0; }));
    const auto niceness = [](pid_t thread) {
      return getpriority(PRIO_PROCESS, static_cast<id_t>(thread));
    };
    EXPECT_EQ(niceness(id.load()), 15);
    EXPECT_EQ(priority.ReleaseMade(), 0);
    EXPECT_EQ(niceness(id.load()), base);
    EXPECT_EQ(OwnNiceness(), 15);
    EXPECT_EQ(priority.End(), 0);
    EXPECT_EQ(OwnNiceness(), base);
    stop.store(true);
    child.join();
  });
  builder.join();
}

}  // namespace
}  // namespace rewire::shim
