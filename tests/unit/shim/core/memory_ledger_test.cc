#include "shim/core/memory_ledger.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace rewire::shim {
namespace {

TEST(MemoryLedgerTest, SumsMeasurementsAndTakesTheLargestForAnUnknownFirst) {
  MemoryLedger ledger;
  const CommunicatorId a{1, 1};
  const CommunicatorId b{2, 2};
  const CommunicatorId c{3, 3};
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a, b}), 0u);
  ledger.AddTaken(a, 100, 90);
  ledger.AddTaken(a, 90, 70);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a, c}), 30u);
  ledger.RecordBuilt(a, 100, 70);
  ledger.AddTaken(b, 100, 90);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a, b}), 40u);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a, c}), 30u);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{c, a}), 60u);
  EXPECT_TRUE(ledger.Check(std::vector<OnDevice>{a, b}, 40).ok());
  EXPECT_FALSE(ledger.Check(std::vector<OnDevice>{a, b}, 39).ok());
  ledger.AddTaken(b, 100, 90);      // the refusal has forgotten it
  ledger.RecordBuilt(a, 100, 120);  // another thread freed memory meanwhile
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a, b}), 10u);
  ledger.Forget(b);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{b}), 0u);
}

TEST(MemoryLedgerTest, ExpectsTheLargestOfTheBuildAndTheLastTwoDestructions) {
  MemoryLedger ledger;
  const OnDevice a = CommunicatorId{1, 1};
  const std::vector<OnDevice> all{a};
  ledger.RecordDestroyed(a, 100, 200);  // of a communicator that was closed meanwhile
  EXPECT_EQ(ledger.Expected(all), 0u);
  ledger.RecordBuilt(a, 100, 70);
  ledger.RecordDestroyed(a, 70, 170);
  EXPECT_EQ(ledger.Expected(all), 100u);
  ledger.RecordDestroyed(a, 70, 110);
  EXPECT_EQ(ledger.Expected(all), 100u);
  ledger.RecordDestroyed(a, 70, 110);
  EXPECT_EQ(ledger.Expected(all), 40u);
  ledger.RecordDestroyed(a, 70, 60);
  ledger.RecordDestroyed(a, 70, 60);
  EXPECT_EQ(ledger.Expected(all), 30u);
  // The program freed memory during a destruction. Only one change is refused for that.
  ledger.RecordDestroyed(a, 70, 970);
  EXPECT_FALSE(ledger.Check(all, 100).ok());
  EXPECT_TRUE(ledger.Check(all, 100).ok());
}

// Another process that shares the device may have allocated during the program's call.
TEST(MemoryLedgerTest, OneRefusalForgetsWhatTheProgramsCallsTook) {
  MemoryLedger ledger;
  const CommunicatorId a{1, 1};
  const std::vector<OnDevice> all = {a};
  ledger.AddTaken(a, 1000, 100);
  EXPECT_FALSE(ledger.Check(all, 500).ok());
  EXPECT_TRUE(ledger.Check(all, 500).ok());
  ledger.RecordBuilt(a, 100, 70);
  EXPECT_FALSE(ledger.Check(all, 20).ok());
  EXPECT_FALSE(ledger.Check(all, 20).ok());
}

TEST(MemoryTurnTest, IsAloneOnlyWithoutAnOverlappingTurn) {
  const auto turns = std::make_shared<MemoryTurns>();
  { EXPECT_TRUE(MemoryTurn(turns).Alone()); }
  {
    EXPECT_TRUE(turns->None(1));
    EXPECT_FALSE(turns->None(0));
    const MemoryTurn first(turns);
    EXPECT_FALSE(turns->None(2));
    EXPECT_TRUE(first.Alone());
    { EXPECT_FALSE(MemoryTurn(turns).Alone()); }
    EXPECT_FALSE(first.Alone());
  }
  EXPECT_TRUE(MemoryTurn(turns).Alone());
}

}  // namespace
}  // namespace rewire::shim
