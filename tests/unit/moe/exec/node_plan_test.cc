#include "reconfig/moe/exec/node_plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "reconfig/moe/plan/batch.h"
#include "tests/unit/moe/plan/any_batch.h"

namespace rewire::moe {
namespace {

constexpr uint32_t kRanks = 8;
constexpr uint32_t kOwn = 16;

Shape LargeShape() {
  Shape shape;
  shape.experts = kOwn;
  shape.weight_bytes = 72 << 20;
  shape.token_bytes = 12 << 10;
  shape.rows = 1 << 20;
  shape.gate_percent = 100;
  return shape;
}

// Each rank posts its own data: its counts, and the dynamic experts that follow from the counts.
std::vector<Posting> Postings(const std::vector<uint32_t>& tokens, const Shape& shape) {
  std::vector<Posting> postings(kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    Posting& p = postings[rank];
    const auto first = tokens.begin() + ptrdiff_t{rank} * kOwn;
    p.tokens.assign(first, first + kOwn);
    p.dynamic = ChooseDynamic(p.tokens, shape.dynamic);
    p.copies = shape.slots * kRanks;
    p.slots.resize(shape.slots);
  }
  return postings;
}

// Every micro-batch has different hot experts than all earlier ones.
std::vector<uint32_t> Shifted(std::mt19937_64* random) {
  std::vector<uint32_t> tokens(size_t{kRanks} * kOwn);
  for (uint32_t& t : tokens) t = 1500 + static_cast<uint32_t>((*random)() % 500);
  for (int hot = 0; hot < 12; ++hot) {
    tokens[(*random)() % tokens.size()] += 2000 + static_cast<uint32_t>((*random)() % 6000);
  }
  return tokens;
}

TEST(NodePlanTest, EvensShiftedLoadsInTheFirstMicroBatch) {
  const Shape shape = LargeShape();
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::vector<uint32_t> tokens = Shifted(&random);
    std::vector<uint64_t> loads(kRanks);
    for (uint32_t e = 0; e < tokens.size(); ++e) loads[e / kOwn] += tokens[e];
    for (const PlacedMove& s : PlanNode(Postings(tokens, shape), shape).moves) {
      loads[s.from] -= s.move.tokens;
      loads[s.move.to] += s.move.tokens;
    }
    const uint64_t sum = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
    const uint64_t most = *std::max_element(loads.begin(), loads.end());
    EXPECT_LE(most * kRanks * 1000, sum * 1005) << i;
  }
}

TEST(NodePlanTest, TakesTheSmallestBudgetAndTheSlowestSpeeds) {
  const Shape shape = LargeShape();
  std::mt19937_64 random(1);
  std::vector<Posting> postings = Postings(Shifted(&random), shape);
  for (Posting& p : postings) p.stay = true;
  postings[3].copies = 2;
  postings[4].speeds = {7, 1, 5};
  postings[5].speeds = {3, 9, 4};
  postings[6].stay = false;
  const NodePlan plan = PlanNode(postings, shape);
  EXPECT_EQ(plan.speeds.row, 7u);
  EXPECT_EQ(plan.speeds.kib, 9u);
  EXPECT_EQ(plan.speeds.start, 5u);
  EXPECT_FALSE(plan.stay);
  EXPECT_LE(plan.moves.size(), 2u);
}

Shape SmallShape() {
  Shape shape;
  shape.experts = 4;
  shape.weight_bytes = 10 << 10;
  shape.grad_bytes = 0;
  shape.token_bytes = 1 << 10;
  shape.slots = 4;
  shape.rows = 1000;
  return shape;
}

const BalanceOptions kOptions{{UINT32_MAX, 4}, 100, 1, {}};
const Holdings kNothing{{2, std::vector<Slot>(4)}, false};

// Device 0 has 10 static tokens and 90 dynamic ones, device 1 has 20 static ones.
const Batch kTwoDevices{2, {10, 90, 20, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}};

TEST(ChooseMovesTest, KeepsThePlanWithoutMeasurements) {
  EXPECT_EQ(ChooseMoves(kTwoDevices, kOptions, SmallShape(), {}, kNothing).size(), 1u);
}

TEST(ChooseMovesTest, MovesNothingIfCopiesTakeLongerThanWork) {
  EXPECT_TRUE(
      ChooseMoves(kTwoDevices, kOptions, SmallShape(), {1000, 1'000'000, 0}, kNothing).empty());
}

TEST(ChooseMovesTest, MovesFewerTokensIfCopiesTakeAsLongAsWork) {
  const std::vector<PlacedMove> hidden =
      ChooseMoves(kTwoDevices, kOptions, SmallShape(), {1000, 1, 0}, kNothing);
  const std::vector<PlacedMove> slow =
      ChooseMoves(kTwoDevices, kOptions, SmallShape(), {1000, 500, 0}, kNothing);
  ASSERT_EQ(hidden.size(), 1u);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(hidden[0].move.tokens, 40u);
  EXPECT_LT(slow[0].move.tokens, 40u);
  EXPECT_GT(slow[0].move.tokens, 10u);
}

RC_GTEST_PROP(ChooseMovesTest, IsNeverSlowerThanNoMovesOrAllMoves, ()) {
  const Batch batch = AnyBatch();
  const Speeds speeds{*rc::gen::inRange<uint32_t>(1, 100000),
                      *rc::gen::inRange<uint32_t>(1, 10000000),
                      *rc::gen::element<uint32_t>(0, 1000, 100000000)};
  Shape shape = SmallShape();
  shape.grad_bytes = *rc::gen::element<uint64_t>(0, 20 << 10);
  Holdings holdings{{batch.devices, std::vector<Slot>(shape.slots)}, *rc::gen::arbitrary<bool>()};
  for (uint32_t e = 0; e < batch.tokens.size(); ++e) {
    holdings.slots[e % batch.devices][e % shape.slots].expert = e;
  }
  const std::vector<PlacedMove> chosen = ChooseMoves(batch, kOptions, shape, speeds, holdings);
  const std::vector<PlacedMove> all =
      PlaceMoves(batch, BalanceMoves(batch, kOptions), holdings.slots, shape.rows);
  Makespan makespan(batch, shape, speeds, holdings.stay);
  const uint64_t time = makespan.Of(chosen);
  RC_ASSERT(time <= makespan.Of(all));
  if (chosen != all) RC_ASSERT(time <= makespan.Of({}));
  MovePlan plan;
  for (const PlacedMove& s : chosen) plan.push_back(s.move);
  RC_ASSERT(Check(batch, plan, {UINT32_MAX, shape.slots}).ok());
}

}  // namespace
}  // namespace rewire::moe
