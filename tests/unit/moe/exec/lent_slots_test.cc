#include "reconfig/moe/exec/lent_slots.h"

#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

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

TEST(LentSlotsTest, APlanSeesWhatIsOfItsLayerAndWhenSlotsWereUsed) {
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
