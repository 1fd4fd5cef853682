#include "reconfig/state/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "reconfig/state/plan/overlap.h"
#include "tests/unit/state/plan/checked_moves.h"

namespace rewire::state {
namespace {

using ::testing::HasSubstr;

void ExpectPlanned(const SeatedLayout& from, const SeatedLayout& to, uint32_t tensor,
                   const std::vector<Move>& moves) {
  const CheckedMoves checked = CheckMoves(from, to, tensor, moves);
  EXPECT_EQ(checked.error, "");
  EXPECT_EQ(checked.crossings, checked.least_crossings);
}

TEST(PlanTest, AnyLayoutGoesToAnyOther) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const AnyChange change(seed);
    const SeatedLayout& from = change.from;
    const SeatedLayout& to = change.to;
    ASSERT_TRUE(CheckSameTensors(from, to).ok());
    std::map<uint32_t, std::vector<Move>> moves;
    ASSERT_TRUE(PlanMoves(Sources(from), to, [&](const Move& move) {
                  moves[move.tensor].push_back(move);
                }).ok());
    for (uint32_t tensor = 0; tensor < from.layout->tensors().size(); ++tensor) {
      ExpectPlanned(from, to, tensor, moves[tensor]);
      if (HasFailure()) FAIL() << "seed " << seed << " tensor " << tensor;
    }
  }
}

// Padding changes the intervals of ZeRO. Equal tensors share one geometry.
TEST(PlanTest, PaddedAndOtherTensorsArePlannedApart) {
  LogicalTensor plain;
  plain.shape = {10, 4};
  plain.role = Role::kOptimizer;
  plain.split.dim = 0;
  LogicalTensor padded = plain;
  padded.split.padded = true;
  Parallel wide;
  wide.tensor = 4;
  wide.data = 2;
  const ParallelLayout one = *ParallelLayout::Make({}, {}, {plain, padded});
  const ParallelLayout eight = *ParallelLayout::Make(wide, {.stage = 1}, {plain, padded});
  SeatedLayout from{&one, {{0, 0}}};
  SeatedLayout to{&eight, {}};
  for (uint32_t slot = 0; slot < 8; ++slot) to.seats.push_back({slot, 0});
  std::map<uint32_t, std::vector<Move>> moves;
  ASSERT_TRUE(PlanMoves(Sources(from), to, [&](const Move& move) {
                moves[move.tensor].push_back(move);
              }).ok());
  for (const uint32_t tensor : {0, 1}) ExpectPlanned(from, to, tensor, moves[tensor]);
}

TEST(PlanTest, ReplicasOfAThousandSlotsArePlannedTogether) {
  LogicalTensor norm;
  norm.shape = {16384};
  norm.role = Role::kOptimizer;
  Parallel before;
  before.tensor = 8;
  before.data = 128;
  Parallel after = before;
  after.data = 125;
  const ParallelLayout old_layout = *ParallelLayout::Make(before, {.stage = 1}, {norm});
  const ParallelLayout new_layout = *ParallelLayout::Make(after, {.stage = 1}, {norm});
  EXPECT_EQ(old_layout.Classes(0), 128u);
  SeatedLayout from{&old_layout, {}};
  SeatedLayout to{&new_layout, {}};
  for (uint32_t slot = 0; slot < before.slots(); ++slot) from.seats.push_back({slot, slot / 8});
  for (uint32_t slot = 0; slot < after.slots(); ++slot) to.seats.push_back({slot, slot / 8});
  uint64_t elements = 0;
  ASSERT_TRUE(PlanMoves(Sources(from), to, [&](const Move& move) {
                elements += move.chunk.elements();
              }).ok());
  EXPECT_EQ(elements, 8u * 16384u);
}

// Two stages have the same half of a tensor in buffers, and the other half is lost.
TEST(PlanTest, ElementsOfTwoClassesDoNotHideThatOthersAreLost) {
  const Chunk whole = Chunk::Whole(std::vector<uint64_t>{100});
  Chunk half = whole;
  half.end[0] = 50;
  uint64_t lost = 0;
  for (const Overlap& overlap : OverlapsOf({{half}, {half}}, {{whole}}, 100)) {
    if (overlap.from.empty()) lost += overlap.chunk.elements();
  }
  EXPECT_EQ(lost, 50u);
}

TEST(PlanTest, ErrorsNameTheDifference) {
  LogicalTensor tensor;
  tensor.name = "w";
  tensor.shape = {4};
  LogicalTensor longer = tensor;
  longer.shape = {5};
  LogicalTensor other = tensor;
  other.name = "v";
  const auto layout = [](std::vector<LogicalTensor> tensors) {
    return *ParallelLayout::Make({}, {}, std::move(tensors));
  };
  const ParallelLayout one = layout({tensor});
  const auto expect = [&](const ParallelLayout& to, std::vector<Seat> seats, const char* text) {
    const absl::Status status = CheckSameTensors({&one, {{0, 0}}}, {&to, std::move(seats)});
    EXPECT_THAT(status.message(), HasSubstr(text));
  };
  expect(one, {}, "plan: to: 0 members: must be the 1 slots");
  expect(layout({}), {{0, 0}}, "plan: to: 0 tensors: must be the 1 of from");
  expect(layout({other}), {{0, 0}}, "plan: to: tensor number 0 is v: must be w");
  expect(layout({longer}), {{0, 0}}, "plan: tensor w: its shape or element_bytes differs");
  Parallel two;
  two.data = 2;
  const ParallelLayout twice = *ParallelLayout::Make(two, {}, {tensor});
  expect(twice, {{3, 0}, {3, 0}}, "plan: to: member 3 has two slots: must have one");
  expect(one, {{0, 1}}, "plan: to: member 0 is on node 1: must be on node 0, as in from");
}

}  // namespace
}  // namespace rewire::state
