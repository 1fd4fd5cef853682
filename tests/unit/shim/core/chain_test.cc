#include "shim/core/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::shim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(DescribePinsTest, HasOneClauseForEachBit) {
  EXPECT_EQ(DescribePins(0), "");
  EXPECT_THAT(DescribePins(1 | 16), HasSubstr("; "));
  for (uint32_t bit = 1; bit <= 32; bit <<= 1) {
    EXPECT_THAT(DescribePins(bit), Not(HasSubstr("unknown")));
  }
}

std::shared_ptr<Chain> ChainOf(VirtualCommunicator* comm, uint64_t id, bool blocking = true) {
  comm->first_id = {id, id};
  comm->recipe.blocking = blocking;
  return std::make_shared<Chain>(comm, nullptr);
}

TEST(ChainsTest, FindsEachCommunicatorUntilItIsRemoved) {
  Chains chains;
  VirtualCommunicator blocking;
  VirtualCommunicator polling;
  const std::shared_ptr<Chain> first = ChainOf(&blocking, 1);
  const std::shared_ptr<Chain> second = ChainOf(&polling, 2, false);
  chains.Add(first);
  chains.Add(second);
  EXPECT_EQ(chains.Of(&blocking), first);
  EXPECT_EQ(chains.All().size(), 2u);
  const Chains::Removed removed = chains.Remove(&blocking);
  EXPECT_EQ(removed.chain, first);
  EXPECT_FALSE(removed.several);
  EXPECT_FALSE(removed.last);
  EXPECT_EQ(chains.Of(&blocking), nullptr);
  EXPECT_EQ(chains.Remove(&blocking).chain, nullptr);
  EXPECT_TRUE(chains.Remove(&polling).last);
}

TEST(ChainsTest, ReportsSeveralRanksOfOneCommunicator) {
  Chains chains;
  VirtualCommunicator rank0;
  VirtualCommunicator rank1;
  VirtualCommunicator other;
  const std::shared_ptr<Chain> first = ChainOf(&rank0, 1);
  const std::shared_ptr<Chain> second = ChainOf(&rank1, 1);
  {
    MutexLock lock(&second->mutex);
    second->rank = 1;
  }
  for (const auto& chain : {second, first, ChainOf(&other, 2)}) chains.Add(chain);
  EXPECT_THAT(chains.RanksOf({1, 1}), ::testing::ElementsAre(first, second));
  EXPECT_TRUE(chains.Remove(&rank0).several);
  EXPECT_FALSE(chains.Remove(&rank1).several);
  EXPECT_THAT(chains.RanksOf({1, 1}), ::testing::IsEmpty());
}

TEST(CombinePositionsTest, IsThePositionOfTheRankFurthestBehind) {
  const CommunicatorId id{1, 1};
  const elastic::PendingSwap third{3, 10, 14};
  const elastic::PendingSwap second{2, 4, 8};
  elastic::Position ahead{id, true, 2, true, 1, {third}, {}};
  const elastic::Position behind{id, true, 0, false, 4, {second, third}, {}};
  const elastic::Position closed{id, false, 0, false, 0, {}, {}};
  const elastic::Position expected{id, true, 0, true, 4, {second, third}, {}};
  EXPECT_EQ(CombinePositions({ahead, behind, closed}), expected);
  EXPECT_EQ(CombinePositions({closed, behind, ahead}), expected);
  // When the last rank has passed, the waits of all ranks count.
  const elastic::Position passed{id, true, 2, false, 2, {third}, {}};
  EXPECT_EQ(CombinePositions({ahead, passed}).host_waits, 3u);
  EXPECT_FALSE(CombinePositions({closed, closed}).open);
}

}  // namespace
}  // namespace rewire::shim
