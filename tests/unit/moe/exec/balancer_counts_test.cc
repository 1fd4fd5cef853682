#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "reconfig/base/counters.h"
#include "reconfig/moe/exec/balancer.h"

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

TEST(BalancerCountsTest, ProcessCountersSumAllBalancers) {
  // Totals of the other tests of this process.
  std::map<Counter, uint64_t> before;
  for (const CounterInfo& info : CounterTable()) before[info.counter] = ValueOf(info.counter);
  const auto grown = [&](Counter counter) { return ValueOf(counter) - before[counter]; };
  std::optional<CountsPart> one, other;
  one.emplace().Set(After(0, 16));
  other.emplace().Set(After(4, 8));
  one->Set(After(6, 0, Off::kLate));
  EXPECT_EQ(grown(Counter::kMoeBudget), 8u);
  one.reset();
  other->Set(After(5, 0, Off::kCopies));
  other->Set(After(5, 0, Off::kBroken));
  other->Set(After(5, 0, Off::kBroken));
  other.reset();
  EXPECT_EQ(grown(Counter::kMoeRounds), 11u);
  EXPECT_EQ(grown(Counter::kMoeMoves), 22u);
  EXPECT_EQ(grown(Counter::kMoeCopiedBytes), 1100u);
  EXPECT_EQ(grown(Counter::kMoeLateRounds), 5u);
  EXPECT_EQ(grown(Counter::kMoeBudget), 0u);
  EXPECT_EQ(grown(Counter::kMoeOffLate), 1u);
  EXPECT_EQ(grown(Counter::kMoeOffCopies), 1u);
  EXPECT_EQ(grown(Counter::kMoeOffBroken), 1u);
}

}  // namespace
}  // namespace rewire::moe
