// Sums of counts, and the history of iterations.
#include "reconfig/moe/plan/counts.h"

#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

Counts One(uint32_t tokens) {
  Counts counts(1, 1);
  counts.at(0, 0) = tokens;
  return counts;
}

TEST(HistoryTest, KeepsTheLastIterations) {
  History history(2);
  EXPECT_TRUE(history.Iterations().empty());
  history.Add(One(1));
  EXPECT_EQ(history.Iterations(), std::vector{One(1)});
  history.Add(One(2));
  history.Add(One(3));
  EXPECT_EQ(history.Iterations(), (std::vector{One(2), One(3)}));
}

TEST(CountsTest, SumSaturates) {
  Counts sum = One(UINT32_MAX - 6);
  sum.Add(One(5));
  EXPECT_EQ(sum, One(UINT32_MAX - 1));
  sum.Add(One(5));
  EXPECT_EQ(sum, One(UINT32_MAX));
}

}  // namespace
}  // namespace rewire::moe
