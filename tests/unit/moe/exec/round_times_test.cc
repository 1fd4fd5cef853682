#include "reconfig/moe/exec/round_times.h"

#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

TEST(LatenessTest, LateRoundsInARowHalveTheBudgetDownToZero) {
  Lateness lateness(5, 3);
  for (const bool late : {true, true, false, true, true}) EXPECT_FALSE(lateness.Count(late));
  EXPECT_EQ(lateness.copies(), 5u);
  EXPECT_TRUE(lateness.Count(true));
  EXPECT_EQ(lateness.copies(), 2u);
  for (int i = 0; i < 6; ++i) (void)lateness.Count(true);
  EXPECT_EQ(lateness.copies(), 0u);
  EXPECT_EQ(lateness.total(), 11u);
}

TEST(LatenessTest, KeepsTheFirstReason) {
  Lateness late(2, 1), failed(2, 1);
  EXPECT_TRUE(late.Count(true));
  EXPECT_EQ(late.off(), Off::kNo);
  EXPECT_TRUE(late.Count(true));
  EXPECT_EQ(late.off(), Off::kLate);
  failed.TurnOff();
  EXPECT_TRUE(failed.Count(true));
  EXPECT_EQ(failed.off(), Off::kCopies);
}

}  // namespace
}  // namespace rewire::moe
