#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "reconfig/moe/exec/lent_slots.h"
#include "reconfig/moe/plan/planners.h"
#include "tests/unit/moe/plan/any_batch.h"

namespace rewire::moe {
namespace {

// Returns whether the ranges (begin, rows) are disjoint and end before `most`.
bool Apart(std::vector<std::pair<uint32_t, uint32_t>> ranges, uint32_t most) {
  std::sort(ranges.begin(), ranges.end());
  uint64_t end = 0;
  for (const auto& [begin, rows] : ranges) {
    if (begin < end) return false;
    end = uint64_t{begin} + rows;
  }
  return end <= most;
}

RC_GTEST_PROP(StowTest, AssignmentsDoNotOverlapOrExceedBuffers, ()) {
  const Batch batch = AnyBatch();
  const auto slots = *rc::gen::inRange<uint32_t>(1, 17);
  const auto rows = *rc::gen::inRange<uint32_t>(1, 5000);
  const MovePlan plan = BalanceMoves(batch, {{UINT32_MAX, 16}, 100, 1, {}});
  const std::vector<PlacedMove> placed = PlaceMoves(batch, plan, slots, rows);
  for (uint32_t d = 0; d < batch.devices; ++d) {
    std::set<uint32_t> in, back;
    std::vector<std::pair<uint32_t, uint32_t>> in_rows, back_rows;
    size_t helps = 0, gives = 0;
    for (const PlacedMove& s : placed) {
      RC_ASSERT(s.from == batch.owner[s.move.expert]);
      if (s.move.to == d) {
        ++helps;
        in.insert(s.slot);
        in_rows.emplace_back(s.row, s.move.tokens);
      }
      if (s.from == d) {
        ++gives;
        back.insert(s.back_slot);
        back_rows.emplace_back(s.back_row, s.move.tokens);
      }
    }
    RC_ASSERT(in.size() == helps && (in.empty() || *in.rbegin() < slots));
    RC_ASSERT(back.size() == gives && (back.empty() || *back.rbegin() < slots));
    RC_ASSERT(Apart(in_rows, rows));
    RC_ASSERT(Apart(back_rows, rows));
  }
}

RC_GTEST_PROP(StowTest, KeepsAllMovesIfThereIsRoom, ()) {
  const Batch batch = AnyBatch();
  const MovePlan plan = BalanceMoves(batch, {{UINT32_MAX, 4}, 100, 1, {}});
  const std::vector<PlacedMove> placed = PlaceMoves(batch, plan, 64, UINT32_MAX);
  RC_ASSERT(placed.size() == plan.size());
  for (size_t i = 0; i < plan.size(); ++i) RC_ASSERT(placed[i].move == plan[i]);
}

TEST(StowTest, KeepsPresentWeightsAndEvictsLeastRecentlyUsed) {
  const Batch batch{2, {100, 50, 30, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {1, 1, 1, 1, 1, 1}};
  const std::vector<Slot> helper = {{Slot::kNone, 8}, {2, 4}, {Slot::kNone, 6}, {Slot::kNone, 9}};
  const std::vector<PlacedMove> placed = PlaceMoves(
      batch, {{0, 1, 0, 10}, {1, 1, 0, 10}, {2, 1, 0, 10}}, {std::vector<Slot>(4), helper}, 100);
  ASSERT_EQ(placed.size(), 3u);
  EXPECT_EQ(placed[0].slot, 2u);
  EXPECT_FALSE(placed[0].held);
  EXPECT_EQ(placed[1].slot, 0u);
  EXPECT_EQ(placed[2].slot, 1u);
  EXPECT_TRUE(placed[2].held);
}

TEST(StowTest, SkipsMoveThatDoesNotFit) {
  const Batch batch{2, {100, 50, 0, 0}, {0, 0, 1, 1}, {1, 1, 1, 1}};
  const std::vector<PlacedMove> placed = PlaceMoves(batch, {{0, 1, 0, 80}, {1, 1, 0, 30}}, 2, 60);
  ASSERT_EQ(placed.size(), 1u);
  EXPECT_EQ(placed[0], (PlacedMove{{1, 1, 0, 30}, 0, 0, 0, 0, 0, false}));
}

constexpr Weights kThis{1, 7, 3};

TEST(LentSlotsTest, KeepsWeightsUntilSlotIsReused) {
  LentSlots slots;
  EXPECT_FALSE(slots.Has(2, kThis, 0));
  slots.Put(2, kThis, 10);
  EXPECT_TRUE(slots.Has(2, kThis, 10));
  EXPECT_FALSE(slots.Has(3, kThis, 10));
  EXPECT_FALSE(slots.Has(2, kThis, 12));  // another owner has used the slot since
  EXPECT_FALSE(slots.Has(2, kThis, 8));   // the helper was late and does not know this entry
  slots.Put(2, kThis, 14);
  EXPECT_TRUE(slots.Has(2, kThis, 14));
  slots.Clear(2);
  EXPECT_FALSE(slots.Has(2, kThis, 14));
  EXPECT_FALSE(slots.Has(2, kThis, 0));
}

TEST(LentSlotsTest, DoesNotFindOtherWeights) {
  LentSlots slots;
  slots.Put(0, kThis, 10);
  EXPECT_FALSE(slots.Has(0, {2, 7, 3}, 10));
  EXPECT_FALSE(slots.Has(0, {1, 8, 3}, 10));
  EXPECT_FALSE(slots.Has(0, {1, 7, 4}, 10));
  slots.Put(0, {1, 7, 0}, 10);
  EXPECT_FALSE(slots.Has(0, {1, 7, 0}, 10));
}

TEST(LentSlotsTest, ShowsPlanTheLayersExpertsAndLastUses) {
  LentSlots slots;
  slots.Put(0, kThis, 10);
  slots.Put(1, {2, 5, 3}, 12);
  slots.Put(2, {1, 6, 2}, 8);
  const std::vector<Slot> of = slots.Of(1, 3, 4);
  ASSERT_EQ(of.size(), 4u);
  EXPECT_EQ(of[0].expert, 7u);
  EXPECT_EQ(of[1].expert, Slot::kNone);
  EXPECT_EQ(of[2].expert, Slot::kNone);
  EXPECT_EQ(of[0].taken, 10u);
  EXPECT_EQ(of[1].taken, 12u);
  EXPECT_EQ(of[3].taken, 0u);
  EXPECT_EQ(slots.Of(1, 0, 4)[0].expert, Slot::kNone);
}

}  // namespace
}  // namespace rewire::moe
