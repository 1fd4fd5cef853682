// The division of tensors over slots, and the names of tensors.
#include "reconfig/state/topo/layout.h"

#include <gtest/gtest.h>

#include "rewire/rewire.h"

namespace rewire::state {
namespace {

TEST(LayoutTest, ShardsAreContiguousAndEqualThoseOfTheCInterface) {
  for (const uint64_t elements : {0u, 1u, 2u, 3u, 7u, 8u, 9u, 1000u, 1001u}) {
    for (uint32_t slots = 1; slots <= 12; ++slots) {
      uint64_t at = 0;
      for (uint32_t slot = 0; slot < slots; ++slot) {
        const Box box = ShardOf(elements, slots, slot);
        uint64_t begin = 0, end = 0;
        rewireShard(elements, slots, slot, &begin, &end);
        EXPECT_EQ(box, (Box{begin, end})) << elements << " " << slots << " " << slot;
        EXPECT_EQ(box.begin, at);
        at = box.end;
      }
      EXPECT_EQ(at, elements) << slots;
    }
  }
}

TEST(LayoutTest, HugeTensorsDoNotOverflow) {
  uint64_t at = 0;
  for (uint32_t slot = 0; slot < 1000; ++slot) {
    const Box box = ShardOf(UINT64_MAX, 1000, slot);
    EXPECT_EQ(box.begin, at);
    at = box.end;
  }
  EXPECT_EQ(at, UINT64_MAX);
}

TEST(LayoutTest, UnknownSlotHasNoPart) {
  EXPECT_TRUE(ShardOf(10, 0, 0).empty());
  EXPECT_TRUE(ShardOf(10, 2, 2).empty());
}

TEST(LayoutTest, ABoxContainsEmptyOnesAndItself) {
  EXPECT_TRUE((Box{2, 8}.Contains({2, 8})));
  EXPECT_TRUE((Box{2, 8}.Contains({9, 9})));
  EXPECT_FALSE((Box{2, 8}.Contains({1, 3})));
}

TEST(LayoutTest, ErrorsNameTensorOrItsNumber) {
  const TensorNames names = {"weights"};
  EXPECT_EQ(TensorText(names, 0), "tensor weights");
  EXPECT_EQ(TensorText(names, 1), "tensor number 1");
}

}  // namespace
}  // namespace rewire::state
