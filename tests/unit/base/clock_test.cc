#include "reconfig/base/clock.h"

#include <gtest/gtest.h>

namespace rewire {
namespace {

TEST(RunningClockTest, CountsAGapAsOneStepAtMost) {
  RunningClock clock(seconds(1));
  const Time begin = Time{} + seconds(100);
  EXPECT_EQ(clock.Read(begin), begin);
  EXPECT_EQ(clock.Read(begin + milliseconds(900)), begin + milliseconds(900));
  EXPECT_EQ(clock.Read(begin + seconds(60)), begin + milliseconds(1900));
  EXPECT_EQ(clock.stalled(), milliseconds(58100));
  EXPECT_EQ(clock.At(begin + seconds(61)), begin + milliseconds(2900));
  EXPECT_EQ(clock.OwnersTime(begin + milliseconds(2900)), begin + seconds(61));
}

TEST(RunningClockTest, ReadsBeforeStepEnds) {
  RunningClock clock(seconds(1));
  const Time begin = Time{} + seconds(100);
  clock.Read(begin);
  EXPECT_EQ(clock.NextReading(), begin + milliseconds(500));
}

TEST(RunningClockTest, ADeadlineIsPassedInTurns) {
  RunningDeadline deadline(milliseconds(1));
  while (!deadline.Passed()) EXPECT_LE(deadline.NextTurn(), Now() + milliseconds(250));
}

}  // namespace
}  // namespace rewire
