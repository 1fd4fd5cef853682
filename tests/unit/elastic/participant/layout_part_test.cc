// The parts of a layout by the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rewire/rewire.h"

namespace rewire::elastic {
namespace {

using ::testing::HasSubstr;

// Fused sections of 4 and 2 rows of 3 elements, and a moment that ZeRO divides.
constexpr char kLayout[] = R"({"parallel": {"tensor": 2, "data": 2, "spare": 1},
  "zero": {"stage": 1},
  "tensors": [{"name": "w", "shape": [6, 3], "split": {"dim": 0, "sections": [4, 2]},
               "optimizer": {"names": ["m"]}}]})";

class LayoutPartTest : public ::testing::Test {
 protected:
  void Get(const char* tensor, uint32_t slot) {
    ASSERT_EQ(rewireLayoutPart(kLayout, tensor, slot, &part_, pieces_, 4), rewireSuccess)
        << rewireLastError();
  }
  void ExpectRefused(const char* layout, const char* tensor, uint32_t slot, const char* reason) {
    EXPECT_EQ(rewireLayoutPart(layout, tensor, slot, &part_, pieces_, 4), rewireInvalidArgument);
    EXPECT_THAT(rewireLastError(), HasSubstr(std::string("rewireLayoutPart: ") + reason));
  }

  rewirePart_t part_ = {sizeof part_, 0, {}, 0, 0, 0, 0};
  rewirePiece_t pieces_[4] = {};
};

TEST_F(LayoutPartTest, HasTheShapeAndThePiecesOfTheSlotsMemory) {
  Get("w", 1);
  EXPECT_EQ(part_.elements, 9u);
  ASSERT_EQ(part_.dims, 2u);
  EXPECT_EQ(part_.shape[0], 3u);
  EXPECT_EQ(part_.shape[1], 3u);
  ASSERT_EQ(part_.pieces, 2u);
  EXPECT_EQ(pieces_[0].begin[0], 2u);
  EXPECT_EQ(pieces_[0].end[0], 4u);
  EXPECT_EQ(pieces_[0].offset, 0u);
  EXPECT_EQ(pieces_[0].strides[0], 3u);
  EXPECT_EQ(pieces_[1].begin[0], 5u);
  EXPECT_EQ(pieces_[1].end[0], 6u);
  EXPECT_EQ(pieces_[1].offset, 6u);
}

TEST_F(LayoutPartTest, MemoryThatZeroDividesIsFlat) {
  Get("w/m", 2);  // the other replica of slot 0
  EXPECT_EQ(part_.elements, 4u);
  EXPECT_EQ(part_.dims, 1u);
  EXPECT_EQ(part_.shape[0], 4u);
  EXPECT_EQ(part_.tensor_dims, 2u);
  Get("w", 4);  // spare
  EXPECT_EQ(part_.elements, 0u);
  EXPECT_EQ(part_.pieces, 0u);
}

TEST_F(LayoutPartTest, CountsThePiecesWithoutRoomForThem) {
  EXPECT_EQ(rewireLayoutPart(kLayout, "w", 0, &part_, nullptr, 0), rewireSuccess);
  EXPECT_EQ(part_.pieces, 2u);
}

TEST_F(LayoutPartTest, ErrorsNameTheArgument) {
  ExpectRefused(nullptr, "w", 0, "layout is NULL");
  ExpectRefused(kLayout, nullptr, 0, "tensor is NULL");
  ExpectRefused(kLayout, "v", 0, "tensor v: is not in the layout");
  ExpectRefused(kLayout, "w", 5, "slot=5: must be below 5");
  ExpectRefused("{\"parallel\": {},\n\"tensors\": 3}", "w", 0, "layout:2:");
  EXPECT_EQ(rewireLayoutPart(kLayout, "w", 0, &part_, nullptr, 1), rewireInvalidArgument);
  part_.size = 8;
  ExpectRefused(kLayout, "w", 0, "part->size=8");
}

}  // namespace
}  // namespace rewire::elastic
