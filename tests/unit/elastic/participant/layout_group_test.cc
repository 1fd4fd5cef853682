// The groups of slots of a layout by the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rewire/rewire.h"

namespace rewire::elastic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kGroupLayout[] = R"({"parallel": {"tensor": 2, "data": 3, "expert": 3, "spare": 1},
  "tensors": [{"name": "w", "shape": [6]}]})";

class LayoutGroupTest : public ::testing::Test {
 protected:
  std::vector<uint32_t> Get(const char* axes, uint32_t slot) {
    std::vector<uint32_t> slots(7);
    EXPECT_EQ(rewireLayoutGroup(kGroupLayout, axes, slot, &group_, slots.data(), 7), rewireSuccess)
        << rewireLastError();
    slots.resize(group_.ranks);
    return slots;
  }
  void ExpectRefused(const char* layout, const char* axes, uint32_t slot, const char* reason) {
    uint32_t slots[7];
    EXPECT_EQ(rewireLayoutGroup(layout, axes, slot, &group_, slots, 7), rewireInvalidArgument);
    EXPECT_THAT(rewireLastError(), HasSubstr(std::string("rewireLayoutGroup: ") + reason));
  }

  rewireGroup_t group_ = {sizeof group_, 0, 0};
};

TEST_F(LayoutGroupTest, HasTheSlotsAndTheRankOfTheSlot) {
  EXPECT_THAT(Get("dp", 3), ElementsAre(1, 3, 5));
  EXPECT_EQ(group_.rank, 1u);
  EXPECT_THAT(Get("tp", 4), ElementsAre(4, 5));
  EXPECT_EQ(group_.rank, 0u);
  EXPECT_THAT(Get("ep", 5), ElementsAre(3, 4, 5));
  EXPECT_EQ(group_.rank, 2u);
  EXPECT_THAT(Get("dp-tp", 5), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(group_.rank, 5u);
  EXPECT_THAT(Get("dp", 6), ElementsAre(6));  // spare
  EXPECT_EQ(group_.rank, 0u);
}

TEST_F(LayoutGroupTest, FillsAsManySlotsAsThereIsRoomFor) {
  EXPECT_EQ(rewireLayoutGroup(kGroupLayout, "dp", 5, &group_, nullptr, 0), rewireSuccess);
  EXPECT_EQ(group_.ranks, 3u);
  EXPECT_EQ(group_.rank, 2u);
  uint32_t slots[] = {9, 9, 9};
  EXPECT_EQ(rewireLayoutGroup(kGroupLayout, "dp", 5, &group_, slots, 2), rewireSuccess);
  EXPECT_THAT(slots, ElementsAre(1, 3, 9));
  EXPECT_EQ(group_.ranks, 3u);
}

TEST_F(LayoutGroupTest, NeedsNoTensor) {
  EXPECT_EQ(rewireLayoutGroup(R"({"parallel": {"data": 2}, "tensors": []})", "dp", 1, &group_,
                              nullptr, 0),
            rewireSuccess)
      << rewireLastError();
  EXPECT_EQ(group_.ranks, 2u);
}

TEST_F(LayoutGroupTest, SharesTheThreadsLastLayoutWithItsParts) {
  Get("dp", 0);
  rewirePart_t part = {sizeof part, 0, {}, 0, 0, 0, 0};
  EXPECT_EQ(rewireLayoutPart(kGroupLayout, "w", 0, &part, nullptr, 0), rewireSuccess);
  EXPECT_EQ(part.elements, 6u);
  EXPECT_THAT(Get("tp", 0), ElementsAre(0, 1));
}

TEST_F(LayoutGroupTest, ErrorsNameTheArgument) {
  ExpectRefused(nullptr, "dp", 0, "layout is NULL");
  ExpectRefused(kGroupLayout, nullptr, 0, "axes is NULL");
  ExpectRefused(kGroupLayout, "tp-xx", 0, "axes=tp-xx: must be some of tp, cp, dp, pp,");
  ExpectRefused(kGroupLayout, "tp-ep", 0, "axes=tp-ep: must be");
  ExpectRefused(kGroupLayout, "", 0, "axes=: must be");
  ExpectRefused(kGroupLayout, "dp", 7, "slot=7: must be below 7, the layout's slots");
  ExpectRefused("{\"parallel\": {},\n\"tensors\": 3}", "dp", 0, "layout:2:");
  EXPECT_EQ(rewireLayoutGroup(kGroupLayout, "dp", 0, nullptr, nullptr, 0), rewireInvalidArgument);
  EXPECT_EQ(rewireLayoutGroup(kGroupLayout, "dp", 0, &group_, nullptr, 1), rewireInvalidArgument);
  group_.size = 8;
  ExpectRefused(kGroupLayout, "dp", 0, "group->size=8");
}

}  // namespace
}  // namespace rewire::elastic
