#include "shim/core/memory_ledger.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {
namespace {

TEST(MemoryLedgerTest, SumsMeasurementsAndTakesTheLargestForAnUnknownFirst) {
  MemoryLedger ledger;
  const CommunicatorId a{1, 1};
  const CommunicatorId b{2, 2};
  const CommunicatorId c{3, 3};
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a, b}), 0u);
  using Maker = MemoryLedger::Maker;
  ledger.Record(a, Maker::kProgram, 100, 70);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a, c}), 30u);
  ledger.Record(a, Maker::kBuilder, 100, 70);
  ledger.Record(b, Maker::kProgram, 100, 90);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a, b}), 40u);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a, c}), 30u);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{c, a}), 60u);
  EXPECT_TRUE(ledger.Check(std::vector<OnDevice>{a, b}, 40).ok());
  EXPECT_FALSE(ledger.Check(std::vector<OnDevice>{a, b}, 39).ok());
  ledger.Record(a, Maker::kBuilder, 100, 120);  // another thread freed memory meanwhile
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
  ledger.Record(a, MemoryLedger::Maker::kBuilder, 100, 70);
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

TEST(MemoryTurnTest, IsAloneOnlyWithoutAnOverlappingTurn) {
  const auto turns = std::make_shared<MemoryTurns>();
  { EXPECT_TRUE(MemoryTurn(turns).Alone()); }
  {
    const MemoryTurn first(turns);
    EXPECT_TRUE(first.Alone());
    { EXPECT_FALSE(MemoryTurn(turns).Alone()); }
    EXPECT_FALSE(first.Alone());
  }
  EXPECT_TRUE(MemoryTurn(turns).Alone());
}

TEST(MemoryLedgerTest, RecordsACreationThatEndsAndForgetsOneThatIsClosed) {
  MemoryLedger ledger;
  VirtualCommunicator first;
  VirtualCommunicator second;
  const CommunicatorId a{1, 1};
  const CommunicatorId b{2, 2};
  ledger.EndCreation(&first, 50);  // never begun
  ledger.BeginCreation(&first, a, 100);
  ledger.BeginCreation(&second, b, 100);
  ledger.DropCreation(&second);
  ledger.EndCreation(&first, 60);
  ledger.EndCreation(&second, 60);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a, b}), 40u);
  ledger.BeginCreation(&first, a, 100);
  ledger.EndCreation(&first, std::nullopt);  // the free memory is unknown
  ledger.EndCreation(&first, 10);
  EXPECT_EQ(ledger.Expected(std::vector<OnDevice>{a}), 40u);
}

}  // namespace
}  // namespace rewire::shim
