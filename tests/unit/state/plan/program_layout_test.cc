// A program's layout and its registered tensors must fit each other.
#include "reconfig/state/plan/program_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reconfig/state/plan/layout_hash.h"

namespace rewire::state {
namespace {

using ::testing::HasSubstr;

const TensorShape kStep{"step", 1, 8, Division::kReplicated, Change::kVolatile};
const TensorShape kWeight{"w", 6, 4, Division::kByLayout};
const TensorShape kMoment{"w/m", 6, 4, Division::kByLayout};

constexpr char kText[] = R"({"parallel": {"tensor": 2},
  "tensors": [{"name": "w", "shape": [4, 3], "element_bytes": 4, "split": {"dim": 0},
               "optimizer": {"names": ["m"]}}]})";

std::string Refused(const std::vector<TensorShape>& tensors, uint32_t slots = 2,
                    const std::string& text = kText) {
  return std::string(ProgramLayout(tensors, slots, text).status().message());
}

TEST(ProgramLayoutTest, TensorsAreInTheOrderOfTheirRegistration) {
  const std::vector<TensorShape> tensors = {kMoment, kStep, kWeight};
  const auto layout = ProgramLayout(tensors, 2, kText);
  ASSERT_TRUE(layout.ok()) << layout.status();
  for (size_t t = 0; t < tensors.size(); ++t) EXPECT_EQ(layout->tensors()[t].name, tensors[t].name);
  for (const uint32_t slot : {0, 1}) {
    EXPECT_EQ(layout->ElementsOf(0, slot), 6u);
    EXPECT_EQ(layout->ElementsOf(1, slot), 1u) << "every slot has a replicated tensor";
  }
}

// The place in a buffer is that of the text, in whatever order a program registers its tensors.
TEST(ProgramLayoutTest, ABufferHasTheOrderOfTheText) {
  const std::string text = R"({"parallel": {"data": 2}, "zero": {"stage": 3, "way": "buffer"},
    "tensors": [{"name": "a", "shape": [4]}, {"name": "b", "shape": [4]}]})";
  const TensorShape a{"a", 4, 1, Division::kByLayout};
  const TensorShape b{"b", 4, 1, Division::kByLayout};
  for (const bool swapped : {false, true}) {
    const auto layout = ProgramLayout(swapped ? std::vector{b, a} : std::vector{a, b}, 2, text);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->ElementsOf(swapped ? 1 : 0, 0), 4u);
    EXPECT_EQ(layout->ElementsOf(swapped ? 0 : 1, 0), 0u);
  }
}

TEST(ProgramLayoutTest, ErrorsNameTheSlotsAndTheTensor) {
  EXPECT_EQ(Refused({kWeight, kMoment}, 3),
            "layout of 3 slots: parallel: has 2 slots: must have 3");
  EXPECT_EQ(Refused({kWeight}), "layout of 2 slots: tensor w/m: is not registered");
  EXPECT_EQ(Refused({kWeight, kMoment, {"v", 1, 4, Division::kByLayout}}),
            "layout of 2 slots: tensor v: is registered, and missing here");
  EXPECT_THAT(Refused({{"w", 12, 4}, kMoment}), HasSubstr("tensor w: is replicated: must be"));
  EXPECT_THAT(Refused({{"x", 12, 4, Division::kSharded}}), HasSubstr("tensor x: is rewireSharded"));
  EXPECT_EQ(Refused({{"w", 6, 2, Division::kByLayout}, kMoment}),
            "layout of 2 slots: tensor w: element_bytes=4, and it is registered with "
            "element_bytes=2");
  EXPECT_THAT(Refused({{"w", 6, 4, Division::kByLayout, Change::kVolatile}, kMoment}),
              HasSubstr("tensor w: change=constant, and it is registered with change=volatile"));
  EXPECT_THAT(Refused({}, 1, R"({"parallel": {}, "tensors": [], "members": [0]})"),
              HasSubstr("layout of 1 slots: members: must be left out"));
  EXPECT_THAT(Refused({}, 1, "{\"parallel\": {},\n\"tensors\": 3}"),
              HasSubstr("layout of 1 slots:2:"));
}

TEST(LayoutHashTest, EachFieldIsInTheHash) {
  const std::vector<TensorShape> tensors = {{"w", 12, 4, Division::kByLayout}};
  const std::string start = R"({"parallel": {"data": 2}, "zero": )";
  const std::string zeros[] = {R"({"stage": 3})", R"({"stage": 2})",
                               R"({"stage": 3, "way": "rows"})", R"({"stage": 3, "align": 2})"};
  const std::string ends[] = {R"("shape": [12]})",
                              R"("shape": [3, 4]})",
                              R"("shape": [3, 4], "split": {"dim": 1}})",
                              R"("shape": [3, 4], "role": "other"})",
                              R"("shape": [3, 4], "layer": "every_slot", "role": "other"})",
                              R"("shape": [3, 4], "split": {"dim": 0, "unit": 2}})",
                              R"("shape": [3, 4], "split": {"dim": 0, "padded": true}})",
                              R"("shape": [3, 4], "split": {"dim": 1, "sections": [1, 3]}})",
                              R"("shape": [3, 4], "experts": 0})",
                              R"("shape": [3, 4], "buffer": "b"})"};
  std::vector<uint64_t> hashes;
  for (const std::string& zero : zeros) {
    for (const std::string& end : ends) {
      const auto layout = ProgramLayout(
          tensors, 2,
          start + zero + R"(, "tensors": [{"name": "w", "element_bytes": 4, )" + end + "]}");
      ASSERT_TRUE(layout.ok()) << layout.status();
      hashes.push_back(HashOf(*layout));
    }
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
}

}  // namespace
}  // namespace rewire::state
