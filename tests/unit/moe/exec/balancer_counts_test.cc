#include "reconfig/moe/exec/balancer_counts.h"

#include <gtest/gtest.h>

#include <optional>

#include "reconfig/moe/exec/lateness.h"

namespace rewire::moe {
namespace {

BalancerCounts After(uint64_t rounds, uint32_t copies, Off off = Off::kNo) {
  BalancerCounts counts;
  counts.rounds = rounds;
  counts.given = 2 * rounds;
  counts.copied_bytes = 100 * rounds;
  counts.late_rounds = rounds / 2;
  counts.copies = copies;
  counts.off = off;
  return counts;
}

TEST(BalancerCountsTest, AProcessHasWhatAllItsBalancersHaveDone) {
  const ProcessCounts before = CountsOfProcess();
  std::optional<CountsPart> one, other;
  one.emplace().Set(After(0, 16));
  other.emplace().Set(After(4, 8));
  one->Set(After(6, 0, Off::kLate));
  EXPECT_EQ(CountsOfProcess().copies - before.copies, 8u);
  one.reset();
  other->Set(After(5, 0, Off::kCopies));
  other->Set(After(5, 0, Off::kBroken));
  other->Set(After(5, 0, Off::kBroken));
  other.reset();
  const ProcessCounts now = CountsOfProcess();
  EXPECT_EQ(now.rounds - before.rounds, 11u);
  EXPECT_EQ(now.given - before.given, 22u);
  EXPECT_EQ(now.copied_bytes - before.copied_bytes, 1100u);
  EXPECT_EQ(now.late_rounds - before.late_rounds, 5u);
  EXPECT_EQ(now.copies, before.copies);
  EXPECT_EQ(now.off_late - before.off_late, 1u);
  EXPECT_EQ(now.off_copies - before.off_copies, 1u);
  EXPECT_EQ(now.off_broken - before.off_broken, 1u);
}

TEST(BalancerCountsTest, TheFirstReasonIsWhy) {
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
