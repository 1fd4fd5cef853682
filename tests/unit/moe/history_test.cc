#include "reconfig/moe/history.h"

#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

Counts One(uint32_t tokens) {
  Counts counts(1, 1);
  counts.at(0, 0) = tokens;
  return counts;
}

TEST(HistoryTest, SumsTheLastIterations) {
  History history(3);
  uint32_t expected[] = {1, 3, 7, 14, 28};
  for (uint32_t i = 0; i < 5; ++i) {
    history.Add(One(1u << i));
    EXPECT_EQ(history.Sum(), One(expected[i]));
  }
}

TEST(HistoryTest, ASumStopsAtTheGreatestNumber) {
  History history(2);
  history.Add(One(UINT32_MAX - 1));
  history.Add(One(5));
  EXPECT_EQ(history.Sum(), One(UINT32_MAX));
}

}  // namespace
}  // namespace rewire::moe
