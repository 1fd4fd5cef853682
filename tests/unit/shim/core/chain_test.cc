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
  comm->id = {id, id};
  comm->recipe.blocking = blocking;
  return std::make_shared<Chain>(comm, nullptr);
}

TEST(ChainsTest, FindsEachCommunicatorUntilItIsRemoved) {
  Chains chains;
  VirtualCommunicator blocking;
  VirtualCommunicator polling;
  const std::shared_ptr<Chain> first = ChainOf(&blocking, 1);
  const std::shared_ptr<Chain> second = ChainOf(&polling, 2, false);
  EXPECT_FALSE(chains.Add(first));
  EXPECT_FALSE(chains.Add(second));
  EXPECT_EQ(chains.Of(&blocking), first);
  EXPECT_EQ(chains.All().size(), 2u);
  EXPECT_THAT(chains.NonBlocking(nullptr), ::testing::ElementsAre(second));
  const Chains::Removed removed = chains.Remove(&blocking);
  EXPECT_EQ(removed.chain, first);
  EXPECT_FALSE(removed.several);
  EXPECT_FALSE(removed.last);
  EXPECT_EQ(chains.Of(&blocking), nullptr);
  EXPECT_EQ(chains.Remove(&blocking).chain, nullptr);
  EXPECT_TRUE(chains.Remove(&polling).last);
}

TEST(ChainsTest, FindsTheNonBlockingCommunicatorsOfADevice) {
  Chains chains;
  VirtualCommunicator here;
  VirtualCommunicator unknown;
  VirtualCommunicator elsewhere;
  const auto add = [&](VirtualCommunicator* comm, DeviceContext context) {
    comm->recipe.blocking = false;
    chains.Add(std::make_shared<Chain>(comm, context));
  };
  add(&here, &here);
  add(&unknown, nullptr);
  add(&elsewhere, &elsewhere);
  EXPECT_THAT(chains.NonBlocking(&here),
              ::testing::UnorderedElementsAre(chains.Of(&here), chains.Of(&unknown)));
  EXPECT_EQ(chains.NonBlocking(nullptr).size(), 3u);
}

TEST(ChainsTest, ReportsSeveralRanksOfOneCommunicator) {
  Chains chains;
  VirtualCommunicator rank0;
  VirtualCommunicator rank1;
  EXPECT_FALSE(chains.Add(ChainOf(&rank0, 1)));
  EXPECT_TRUE(chains.Add(ChainOf(&rank1, 1)));
  EXPECT_TRUE(chains.Remove(&rank0).several);
  EXPECT_FALSE(chains.Remove(&rank1).several);
}

}  // namespace
}  // namespace rewire::shim
