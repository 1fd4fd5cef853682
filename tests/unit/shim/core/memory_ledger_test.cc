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

TEST(BuildTurnTest, IsAloneOnlyWithoutAnOverlappingBuild) {
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
