#include "reconfig/moe/exec/choose_moves.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/moe/plan/any_batch.h"

namespace rewire::moe {
namespace {

Shape AnyShape() {
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
const Batch kUneven{2, {10, 90, 20, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}};

TEST(ChooseMovesTest, WithoutMeasurementsItIsThePlan) {
  EXPECT_EQ(ChooseMoves(kUneven, kOptions, AnyShape(), {}, kNothing).size(), 1u);
}

TEST(ChooseMovesTest, NothingIsMovedWhereCopiesTakeLongerThanWork) {
  EXPECT_TRUE(ChooseMoves(kUneven, kOptions, AnyShape(), {1000, 1'000'000, 0}, kNothing).empty());
}

TEST(ChooseMovesTest, FewerTokensWhereCopiesTakeAsLongAsWork) {
  const std::vector<Stowed> hidden =
      ChooseMoves(kUneven, kOptions, AnyShape(), {1000, 1, 0}, kNothing);
  const std::vector<Stowed> slow =
      ChooseMoves(kUneven, kOptions, AnyShape(), {1000, 500, 0}, kNothing);
  ASSERT_EQ(hidden.size(), 1u);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(hidden[0].move.tokens, 40u);
  EXPECT_LT(slow[0].move.tokens, 40u);
  EXPECT_GT(slow[0].move.tokens, 10u);
}

RC_GTEST_PROP(ChooseMovesTest, ItIsNeverSlowerThanNoMovesOrAll, ()) {
  const Batch batch = AnyBatch();
  const Speeds speeds{*rc::gen::inRange<uint32_t>(1, 100000),
                      *rc::gen::inRange<uint32_t>(1, 10000000),
                      *rc::gen::element<uint32_t>(0, 1000, 100000000)};
  Shape shape = AnyShape();
  shape.grad_bytes = *rc::gen::element<uint64_t>(0, 20 << 10);
  Holdings holdings{{batch.devices, std::vector<Slot>(shape.slots)}, *rc::gen::arbitrary<bool>()};
  for (uint32_t e = 0; e < batch.tokens.size(); ++e) {
    holdings.slots[e % batch.devices][e % shape.slots].expert = e;
  }
  const std::vector<Stowed> chosen = ChooseMoves(batch, kOptions, shape, speeds, holdings);
  const std::vector<Stowed> all =
      Stow(batch, BalanceMoves(batch, kOptions), holdings.slots, shape.rows);
  Makespan makespan(batch, shape, speeds, holdings.stay);
  const uint64_t time = makespan.Of(chosen);
  RC_ASSERT(time <= makespan.Of(all));
  if (chosen != all) RC_ASSERT(time <= makespan.Of({}));
  MovePlan plan;
  for (const Stowed& s : chosen) plan.push_back(s.move);
  RC_ASSERT(Check(batch, plan, {UINT32_MAX, shape.slots}).ok());
}

}  // namespace
}  // namespace rewire::moe
