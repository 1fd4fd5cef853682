// The worlds that requests lead to, and the order of slots.
#include "reconfig/elastic/leader/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace rewire::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<std::vector<MemberId>> Apply(const ChangeRequest& r, MemberId* next) {
  return ApplyRequest(r, {4, 2, 7}, 5, next);
}

TEST(RequestTest, ComputesTargetWorlds) {
  MemberId next = 10;
  EXPECT_THAT(*Apply({RequestKind::kResize, 5, {}, {}, ""}, &next), ElementsAre(4, 2, 7, 10, 11));
  EXPECT_EQ(next, 12u);
  EXPECT_THAT(*Apply({RequestKind::kResize, 2, {}, {}, ""}, &next), ElementsAre(4, 2));
  EXPECT_THAT(*Apply({RequestKind::kResize, 1, {}, {}, ""}, &next), ElementsAre(2));
  EXPECT_THAT(*Apply({RequestKind::kDrain, 0, {2}, {}, ""}, &next), ElementsAre(4, 7));
  EXPECT_THAT(*Apply({RequestKind::kReplace, 0, {2}, {}, ""}, &next), ElementsAre(4, 12, 7));
  EXPECT_THAT(*Apply({RequestKind::kRebuild, 0, {}, {}, ""}, &next), ElementsAre(4, 2, 7));
  EXPECT_EQ(next, 13u);
}

TEST(RequestTest, ErrorsNameTheFaultAndTakeNoId) {
  MemberId next = 10;
  const auto error = [&](const ChangeRequest& r) {
    return std::string(Apply(r, &next).status().message());
  };
  EXPECT_THAT(error({RequestKind::kResize, 0, {}, {}, ""}), HasSubstr("0 members"));
  EXPECT_THAT(error({RequestKind::kResize, 6, {}, {}, ""}), HasSubstr("at most 5"));
  EXPECT_THAT(error({RequestKind::kDrain, 0, {9}, {}, ""}),
              HasSubstr("member 9 is not in the world; it has 4, 2, 7"));
  EXPECT_THAT(error({RequestKind::kDrain, 0, {}, {}, ""}), HasSubstr("no member"));
  EXPECT_THAT(error({RequestKind::kDrain, 0, {4, 4}, {}, ""}), HasSubstr("named twice"));
  EXPECT_THAT(error({RequestKind::kDrain, 0, {7, 4, 2}, {}, ""}), HasSubstr("at least one member"));
  EXPECT_THAT(error({RequestKind::kReplace, 0, {9}, {}, ""}), HasSubstr("member 9"));
  EXPECT_THAT(error({RequestKind::kReplace, 0, {2, 4}, {}, ""}), HasSubstr("exactly one"));
  EXPECT_EQ(next, 10u);
}

TEST(RequestTest, DescribesRequestWithDeadlineAndReason) {
  EXPECT_EQ(Describe({RequestKind::kDrain, 0, {3, 5}, seconds(120), "reclaim"}),
            "drain 3 5 within 120000 ms (reclaim)");
  EXPECT_EQ(Describe({RequestKind::kResize, 4, {}, {}, ""}), "resize to 4");
}

TEST(OrderSlotsTest, PutsNewMembersBetweenRemainingMembers) {
  const std::vector<MemberId> two = {0, 1};
  EXPECT_EQ(OrderSlots(two, {0, 1, 2, 3}), (std::vector<MemberId>{0, 2, 1, 3}));
  EXPECT_EQ(OrderSlots({0, 1, 2}, {0, 1, 2, 5}), (std::vector<MemberId>{0, 1, 5, 2}));
  EXPECT_EQ(OrderSlots({0}, {0, 1, 2}), (std::vector<MemberId>{0, 1, 2}));
}

TEST(OrderSlotsTest, LeavingAndReplacedMembersMoveNobodyElse) {
  const std::vector<MemberId> four = {4, 1, 7, 3};
  EXPECT_EQ(OrderSlots(four, four), four);
  EXPECT_EQ(OrderSlots(four, {4, 9, 7, 3}), (std::vector<MemberId>{4, 9, 7, 3}));
  EXPECT_EQ(OrderSlots(four, {9, 1, 7, 3}), (std::vector<MemberId>{9, 1, 7, 3}));
  EXPECT_EQ(OrderSlots(four, {4, 7, 3}), (std::vector<MemberId>{4, 7, 3}));
  EXPECT_EQ(OrderSlots(four, {4, 1}), (std::vector<MemberId>{4, 1}));
  EXPECT_EQ(OrderSlots(four, {8, 9}), (std::vector<MemberId>{8, 9}));
}

TEST(OrderSlotsTest, EveryMemberHasOneSlotForAllSizes) {
  for (MemberId n = 1; n <= 9; ++n) {
    for (MemberId m = 1; m <= 9; ++m) {
      std::vector<MemberId> from(n);
      std::iota(from.begin(), from.end(), 0);
      std::vector<MemberId> members(m);
      std::iota(members.begin(), members.end(), n / 2);
      std::vector<MemberId> order = OrderSlots(from, members);
      std::sort(order.begin(), order.end());
      EXPECT_EQ(order, members) << n << " to " << m;
    }
  }
}

}  // namespace
}  // namespace rewire::elastic
