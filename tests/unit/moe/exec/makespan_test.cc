#include "reconfig/moe/exec/makespan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

using testing::ElementsAre;

Shape FourExperts() {
  Shape shape;
  shape.experts = 4;
  shape.weight_bytes = 10 << 10;
  shape.grad_bytes = 0;
  shape.token_bytes = 1 << 10;
  shape.slots = 4;
  shape.rows = 1000;
  return shape;
}

// Device 0 has 10 static tokens and 90 dynamic ones, device 1 has 20 static ones.
const Batch kUneven{2, {10, 90, 20, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}};
const std::vector<PlacedMove> kForty{{{1, 1, 0, 40}, 0, 0, 0, 0, 0, false}};

uint64_t TimeOf(const std::vector<PlacedMove>& moves, const Shape& shape, uint32_t kib) {
  return Makespan(kUneven, shape, {1000, kib, 0}, false).Of(moves);
}

TEST(MakespanTest, FreeCopiesLeaveTheBusiestDevice) {
  EXPECT_EQ(TimeOf({}, FourExperts(), 0), 100'000u);
  EXPECT_EQ(TimeOf(kForty, FourExperts(), 0), 60'000u);
}

TEST(MakespanTest, HelperWaitsForCopiesAndOwnerForResults) {
  // 10 KiB of weights and 40 KiB of tokens at 500 arrive at 25,000, after the 20 static rows. Then
  // follow 40 rows and 40 KiB back.
  EXPECT_EQ(TimeOf(kForty, FourExperts(), 500), 25'000u + 40'000u + 20'000u);
}

TEST(MakespanTest, HeldWeightsTakeNoTime) {
  std::vector<PlacedMove> held = kForty;
  held[0].held = true;
  // 40 KiB of tokens at 500 arrive at 20,000.
  EXPECT_EQ(TimeOf(held, FourExperts(), 500), 20'000u + 40'000u + 20'000u);
}

TEST(MakespanTest, BackwardDoublesWorkAndReturnsGradients) {
  Shape shape = FourExperts();
  shape.grad_bytes = 20 << 10;
  // Out: 10 + 80 KiB; back: 40 + 20 KiB.
  const uint64_t backward = 45'000 + 80'000 + 30'000;
  EXPECT_EQ(TimeOf(kForty, shape, 500), 85'000 + backward);
}

TEST(MakespanTest, ForwardCopiesBeginAfterPlanning) {
  Shape shape = FourExperts();
  // 10 KiB of weights and 40 of tokens at 500 arrive at 35,000 instead of 25,000.
  EXPECT_EQ(Makespan(kUneven, shape, {1000, 500, 10'000}, false).Of(kForty), 95'000u);
  EXPECT_EQ(Arrivals(kForty, shape, {1000, 500, 10'000}, false, false)[0], 35'000u);
  EXPECT_EQ(Arrivals(kForty, shape, {1000, 500, 10'000}, true, false)[0], 45'000u);
}

TEST(MakespanTest, EvaluationsDoNotAffectOneAnother) {
  const Shape shape = FourExperts();
  Makespan makespan(kUneven, shape, {1000, 500, 0}, false);
  const uint64_t none = makespan.Of({});
  const uint64_t forty = makespan.Of(kForty);
  EXPECT_EQ(none, 100'000u);
  EXPECT_EQ(makespan.Of({}), none);
  EXPECT_EQ(makespan.Of(kForty), forty);
}

TEST(MakespanTest, ReportsTooLongAtTheLimit) {
  const Shape shape = FourExperts();
  Makespan makespan(kUneven, shape, {1000, 500, 0}, false);
  const uint64_t time = makespan.Of(kForty);
  EXPECT_EQ(makespan.Of(kForty, time + 1), time);
  EXPECT_EQ(makespan.Of(kForty, time), Makespan::kTooLong);
}

// Device 2 sends to device 3, which neither computes for device 0 nor waits for its helper.
TEST(MakespanTest, OnlyDevicesThatTheLastDeviceWaitsForDelayIt) {
  const Batch batch{4, {90, 20, 40, 10}, {0, 1, 2, 3}, {1, 1, 1, 1}};
  const std::vector<PlacedMove> moves{{{0, 1, 80, 10}, 0, 0, 0, 0, 0, false},
                                      {{2, 3, 35, 5}, 2, 0, 0, 0, 0, false}};
  const Shape shape = FourExperts();
  EXPECT_EQ(Makespan(batch, shape, {1000, 1, 0}, false).Delaying(moves), 0b0011u);
}

// Returns "o" or "r" with the number of each turn.
std::vector<std::string> NamesOf(const std::vector<Turn>& turns) {
  std::vector<std::string> order;
  for (const Turn& t : turns) order.push_back((t.received ? "r" : "o") + std::to_string(t.index));
  return order;
}

const std::vector<uint32_t> kOwnTokens = {10, 20, 30};

TEST(TakeTurnsTest, ComputesReadyRowsBeforeOwnRows) {
  EXPECT_THAT(NamesOf(TakeTurns(0, kOwnTokens, {{0, 5, 0}}, 100)),
              ElementsAre("r0", "o0", "o1", "o2"));
  EXPECT_THAT(NamesOf(TakeTurns(0, kOwnTokens, {{1001, 5, 0}}, 100)),
              ElementsAre("o0", "o1", "r0", "o2"));
  EXPECT_THAT(NamesOf(TakeTurns(10, kOwnTokens, {{2000, 5, 0}}, 100)),
              ElementsAre("o0", "r0", "o1", "o2"));
}

TEST(TakeTurnsTest, FillsTheTimeWithTheLargestRunThatFits) {
  EXPECT_THAT(NamesOf(TakeTurns(0, kOwnTokens, {{2500, 5, 0}}, 100)),
              ElementsAre("o1", "o0", "r0", "o2"));
}

TEST(TakeTurnsTest, ComputesReceivedRowsInOrderOfArrival) {
  // In the order of arrival, the second is there when the first has been computed; the third is
  // not.
  EXPECT_THAT(NamesOf(TakeTurns(0, kOwnTokens, {{3000, 1, 0}, {500, 5, 1}, {1500, 5, 2}}, 100)),
              ElementsAre("o0", "r1", "r2", "o1", "r0", "o2"));
}

TEST(TakeTurnsTest, LateRowsDoNotDelayOwnRows) {
  EXPECT_THAT(NamesOf(TakeTurns(0, kOwnTokens, {{UINT64_MAX, 5, 0}}, 100)),
              ElementsAre("o2", "o1", "o0", "r0"));
  EXPECT_THAT(NamesOf(TakeTurns(0, {}, {{7, 5, 0}}, 100)), ElementsAre("r0"));
}

}  // namespace
}  // namespace rewire::moe
