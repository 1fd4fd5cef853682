#include "reconfig/moe/exec/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

using testing::ElementsAre;

// Returns "o" or "r" with the number of each turn.
std::vector<std::string> Order(const std::vector<Turn>& turns) {
  std::vector<std::string> order;
  for (const Turn& t : turns) order.push_back((t.received ? "r" : "o") + std::to_string(t.index));
  return order;
}

const std::vector<uint32_t> kOwn = {10, 20, 30};

TEST(TakeTurnsTest, ComputesReadyRowsBeforeOwnRows) {
  EXPECT_THAT(Order(TakeTurns(0, kOwn, {{0, 5, 0}}, 100)), ElementsAre("r0", "o0", "o1", "o2"));
  EXPECT_THAT(Order(TakeTurns(0, kOwn, {{1001, 5, 0}}, 100)), ElementsAre("o0", "o1", "r0", "o2"));
  EXPECT_THAT(Order(TakeTurns(10, kOwn, {{2000, 5, 0}}, 100)), ElementsAre("o0", "r0", "o1", "o2"));
}

TEST(TakeTurnsTest, UntilThenTheLargestThatIsThrough) {
  EXPECT_THAT(Order(TakeTurns(0, kOwn, {{2500, 5, 0}}, 100)), ElementsAre("o1", "o0", "r0", "o2"));
}

TEST(TakeTurnsTest, InTheOrderOfArrival) {
  // In the order of arrival, the second is there when the first has been computed; the third is
  // not.
  EXPECT_THAT(Order(TakeTurns(0, kOwn, {{3000, 1, 0}, {500, 5, 1}, {1500, 5, 2}}, 100)),
              ElementsAre("o0", "r1", "r2", "o1", "r0", "o2"));
}

TEST(TakeTurnsTest, LateRowsDoNotDelayOwnRows) {
  EXPECT_THAT(Order(TakeTurns(0, kOwn, {{UINT64_MAX, 5, 0}}, 100)),
              ElementsAre("o2", "o1", "o0", "r0"));
  EXPECT_THAT(Order(TakeTurns(0, {}, {{7, 5, 0}}, 100)), ElementsAre("r0"));
}

}  // namespace
}  // namespace rewire::moe
