#include "reconfig/moe/exec/round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rewire::moe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint32_t kRank = 1;  // the device owns experts 4 to 7

Shape AnyShape() {
  Shape shape;
  shape.experts = 4;
  shape.weight_bytes = 100;
  shape.grad_bytes = 100;
  shape.token_bytes = 10;
  shape.rows = 1000;
  return shape;
}

RoundInput AnyInput() {
  RoundInput input;
  input.layer = 2;
  input.tokens = {30, 20, 40, 10};
  input.weights.assign(4, {{1000, 60}, {2000, 40}});
  input.x = 10'000;
  input.errors = 20'000;
  input.out = 30'000;
  return input;
}

// The expert, first row and number of rows of each segment.
std::vector<std::string> NamesOf(const std::vector<Segment>& segments) {
  std::vector<std::string> names;
  for (const Segment& s : segments) {
    names.push_back(std::to_string(s.expert) + ":" + std::to_string(s.first) + "+" +
                    std::to_string(s.rows) + (s.recompute ? "!" : ""));
  }
  return names;
}

TEST(RoundTest, CheckNamesFieldAndRange) {
  EXPECT_TRUE(Check(AnyInput(), nullptr, {}, AnyShape(), kRank).ok());
  const auto why = [](auto change, const Moved* moved = nullptr) {
    RoundInput input = AnyInput();
    change(&input);
    return std::string(Check(input, moved, {}, AnyShape(), kRank).message());
  };
  EXPECT_THAT(why([](RoundInput* i) { i->tokens.pop_back(); }),
              HasSubstr("counts=3 weights=4: must each be 4"));
  EXPECT_THAT(why([](RoundInput* i) { i->weights[2][0].bytes = 61; }),
              HasSubstr("weights of expert 2: bytes=101: must be 100"));
  EXPECT_THAT(why([](RoundInput* i) { i->layer = 65537; }), HasSubstr("layer=65537"));
  Moved moved;
  moved.layer = 2;
  moved.dynamic.resize(4);
  EXPECT_EQ(why([](RoundInput*) {}, &moved), "");
  EXPECT_THAT(why([](RoundInput* i) { i->errors = 0; }, &moved), HasSubstr("errors=NULL"));
  EXPECT_THAT(why([](RoundInput* i) { i->layer = 3; }, &moved),
              HasSubstr("layer=3: must be 2, as in the forward round"));
  moved.given = {{{5, 0, 0, 21}, kRank, 0, 0, 0, 0, false}};
  EXPECT_THAT(why([](RoundInput*) {}, &moved), HasSubstr("backward: expert 1: the moves are of"));
}

TEST(RoundTest, NumbersRoundsAndFindsFirstRows) {
  Round round;
  round.Begin(AnyInput(), false);
  EXPECT_EQ(round.key, 2u);
  EXPECT_THAT(round.offsets, ElementsAre(0, 30, 50, 90));
  round.Begin(AnyInput(), true);
  EXPECT_EQ(round.key, 5u);
  EXPECT_TRUE(round.backward());
}

TEST(RoundRowsTest, ComputesAQuarterOfTheStaticRowsAtOnce) {
  Round round;
  round.Begin(AnyInput(), false);
  RoundRows rows(AnyShape(), kRank);
  rows.Begin(round, {0, 1, 0, 0});
  EXPECT_THAT(NamesOf(rows.statics()), ElementsAre("4:0+30"));
  EXPECT_EQ(rows.static_rows(), 30u);
  EXPECT_EQ(rows.statics()[0].x, 10'000u);
  rows.Close(round, {});
  rows.Order(round, {}, {}, false, {});
  EXPECT_EQ(rows.TakeReceived(), std::nullopt);
  const std::vector<Segment> own = rows.TakeOwn();
  EXPECT_THAT(NamesOf(own), ElementsAre("6:0+40", "7:0+10", "5:0+20"));
  EXPECT_EQ(own[1].out, 30'000u + 90 * 10);
  EXPECT_TRUE(rows.done());
}

TEST(RoundRowsTest, LeavesGivenRowsToHelpers) {
  const PlacedMove move{{6, 0, 25, 15}, kRank, 0, 0, 0, 0, false};
  for (const bool backward : {false, true}) {
    Round round;
    round.Begin(AnyInput(), backward);
    RoundRows rows(AnyShape(), kRank);
    rows.Begin(round, {0, 0, 1, 0});
    Give give{move};
    give.state = Give::kGiven;
    rows.Close(round, {&give, 1});
    rows.Order(round, {}, {}, false, {});
    EXPECT_THAT(NamesOf(rows.TakeOwn()), ElementsAre("5:0+20", "7:0+10", "6:0+25"));
  }
}

TEST(RoundRowsTest, RecomputesRowsBackwardThatAHelperComputedForward) {
  Round round;
  round.Begin(AnyInput(), true);
  RoundRows rows(AnyShape(), kRank);
  rows.Begin(round, {0, 0, 1, 0});
  Give give{{{6, 0, 25, 10}, kRank, 0, 0, 0, 0, false}};
  give.state = Give::kKept;
  rows.Close(round, {&give, 1});
  rows.Order(round, {}, {}, false, {});
  EXPECT_THAT(NamesOf(rows.TakeOwn()),
              ElementsAre("5:0+20", "7:0+10", "6:0+25", "6:25+10!", "6:35+5"));
}

TEST(RoundRowsTest, TakesReceivedRowsWhenTheyArrive) {
  Round round;
  round.Begin(AnyInput(), false);
  RoundRows rows(AnyShape(), kRank);
  rows.Begin(round, {0, 1, 0, 0});
  rows.Close(round, {});
  const std::vector<PlacedMove> received = {{{0, kRank, 0, 8}, 0, 0, 0, 0, 0, true}};
  // The move arrives before the rows that are computed at once have been computed.
  rows.Order(round, received, received, false, {1000, 1, 0});
  EXPECT_EQ(rows.LastReceived(), std::nullopt);
  EXPECT_EQ(rows.TakeReceived(), 0u);
  EXPECT_EQ(rows.LastReceived(), 0u);
  EXPECT_EQ(rows.TakeOwn().size(), 3u);
  EXPECT_EQ(rows.LastReceived(), std::nullopt);
  EXPECT_TRUE(rows.done());
  EXPECT_THAT(rows.TakeOwn(), IsEmpty());
}

}  // namespace
}  // namespace rewire::moe
