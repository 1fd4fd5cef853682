// The gate's stops for swaps that are due at an update.
#include "reconfig/elastic/participant/update_gate.h"

#include <gtest/gtest.h>

#include <thread>

namespace rewire::elastic {
namespace {

class SwapGateTest : public ::testing::Test {
 protected:
  // Runs updates until one stops. Returns its number.
  uint64_t RunUntilStop() {
    for (int i = 0; i < 100; ++i) {
      if (!gate_.Begin()) {
        stop_ = gate_.AfterStop();
        if (stop_ != UpdateGate::Stop::kNone) return gate_.version();
      }
      gate_.End();
    }
    return UINT64_MAX;
  }
  // As the program's thread, whose communicators switch at once.
  Epoch Switch(Duration longest = seconds(60)) {
    const Epoch epoch = gate_.AwaitSwap(longest, &late_);
    if (epoch != 0) gate_.EndSwap();
    return epoch;
  }

  UpdateGate gate_;
  UpdateGate::Stop stop_ = UpdateGate::Stop::kNone;
  bool late_ = false;
};

TEST_F(SwapGateTest, ADecidedSwapIsDueAtItsUpdateOnce) {
  ASSERT_TRUE(gate_.PledgeSwap(7, 3));
  gate_.DecideSwap(7, true);
  EXPECT_EQ(RunUntilStop(), 3u);
  EXPECT_EQ(stop_, UpdateGate::Stop::kSwap);
  EXPECT_EQ(Switch(), 7u);
  EXPECT_EQ(RunUntilStop(), UINT64_MAX);
}

TEST_F(SwapGateTest, TheUpdateWaitsForTheDecision) {
  for (const bool go : {true, false}) {
    const uint64_t step = gate_.version() + 2;
    ASSERT_TRUE(gate_.PledgeSwap(9, step));
    EXPECT_EQ(RunUntilStop(), step);
    std::thread decides([&] { gate_.DecideSwap(9, go); });
    EXPECT_EQ(Switch(), go ? 9u : 0u);
    decides.join();
    EXPECT_EQ(gate_.AfterStop(), UpdateGate::Stop::kNone);
    gate_.End();
  }
  EXPECT_FALSE(late_);
}

TEST_F(SwapGateTest, AnUpdateThatHasBegunIsRefused) {
  ASSERT_TRUE(gate_.Begin());
  EXPECT_FALSE(gate_.PledgeSwap(7, 0));
  gate_.End();
  EXPECT_EQ(RunUntilStop(), UINT64_MAX);
}

TEST_F(SwapGateTest, AWaitEndsAfterALossAndAtItsLimit) {
  ASSERT_TRUE(gate_.PledgeSwap(7, 0));
  EXPECT_EQ(RunUntilStop(), 0u);
  EXPECT_EQ(Switch(milliseconds(1)), 0u);
  EXPECT_TRUE(late_);
  gate_.SetBroken();
  late_ = false;
  EXPECT_EQ(Switch(), 0u);
  EXPECT_FALSE(late_);
}

// The second swap may replace the first one, which this member must not have passed then.
TEST_F(SwapGateTest, ASwapThatIsDueWaitsForALaterDecision) {
  ASSERT_TRUE(gate_.PledgeSwap(7, 2));
  gate_.DecideSwap(7, true);
  ASSERT_TRUE(gate_.PledgeSwap(8, 5));
  EXPECT_EQ(RunUntilStop(), 2u);
  EXPECT_EQ(Switch(milliseconds(1)), 0u);
  EXPECT_TRUE(late_);
  gate_.DecideSwap(8, true);
  EXPECT_EQ(Switch(), 7u);
  EXPECT_EQ(RunUntilStop(), 5u);
  EXPECT_EQ(Switch(), 8u);
}

// Otherwise a later swap could replace one that the communicators are just taking.
TEST_F(SwapGateTest, NoSwapIsPledgedWhileTheCommunicatorsSwitch) {
  ASSERT_TRUE(gate_.PledgeSwap(7, 0));
  gate_.DecideSwap(7, true);
  EXPECT_EQ(RunUntilStop(), 0u);
  EXPECT_EQ(gate_.AwaitSwap(seconds(60), &late_), 7u);
  EXPECT_FALSE(gate_.PledgeSwap(8, 5));
  gate_.EndSwap();
  EXPECT_TRUE(gate_.PledgeSwap(8, 5));
}

TEST_F(SwapGateTest, CallingOffOneSwapKeepsAnEarlierDecision) {
  ASSERT_TRUE(gate_.PledgeSwap(7, 5));
  gate_.DecideSwap(7, true);
  ASSERT_TRUE(gate_.PledgeSwap(8, 4));
  gate_.DecideSwap(8, false);
  EXPECT_EQ(RunUntilStop(), 5u);
  EXPECT_EQ(Switch(), 7u);
}

}  // namespace
}  // namespace rewire::elastic
