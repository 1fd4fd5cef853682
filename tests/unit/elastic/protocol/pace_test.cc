#include "reconfig/elastic/protocol/pace.h"

#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

const Time kStart = Time{} + seconds(5);

TEST(PaceTest, OneLookTellsNoRate) {
  Pace pace;
  EXPECT_EQ(pace.issued(), 0u);
  pace.Saw(kStart, 1000);
  EXPECT_EQ(pace.issued(), 1000u);
  EXPECT_EQ(pace.During(seconds(1)), 0u);
  EXPECT_EQ(pace.Margin(16, seconds(1)), 16u);
}

TEST(PaceTest, TheRateIsTheMeanOverAllLooks) {
  Pace pace;
  pace.Saw(kStart, 1000);
  pace.Saw(kStart + milliseconds(99), 1000);
  pace.Saw(kStart + milliseconds(100), 2000);  // a burst
  EXPECT_EQ(pace.During(milliseconds(10)), 100u);
  pace.Saw(kStart + milliseconds(100), 1990);  // a slower member
  EXPECT_EQ(pace.issued(), 2000u);
}

TEST(PaceTest, TheMarginCoversADescheduledThread) {
  Pace pace;
  pace.Saw(kStart, 0);
  pace.Saw(kStart + milliseconds(100), 1000);
  EXPECT_EQ(pace.Margin(16, Duration{}), 500u);
  EXPECT_EQ(pace.Margin(600, Duration{}), 600u);
  EXPECT_EQ(pace.Margin(16, milliseconds(25)), 1000u);
  EXPECT_EQ(pace.Margin(16, seconds(100)), kMostAhead);
}

TEST(PaceTest, ASlowProgramKeepsTheConfiguredMargin) {
  Pace pace;
  pace.Saw(kStart, 7);
  pace.Saw(kStart + seconds(1), 8);
  EXPECT_EQ(pace.Margin(16, milliseconds(10)), 16u);
}

}  // namespace
}  // namespace rewire::elastic
