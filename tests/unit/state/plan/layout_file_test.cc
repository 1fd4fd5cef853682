#include "reconfig/state/plan/layout_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/state/topo/any_layout.h"

namespace rewire::state {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSmall[] = R"({
  "parallel": {"tensor": 2, "data": 2, "layers": 2},
  "zero": {"stage": 1, "way": "buffer", "align": 4},
  "slots_per_node": 2,
  "tensors": [
    {"name": "layers.{layer}.qkv", "shape": [8, 4], "element_bytes": 2, "layer": "each",
     "split": {"dim": 0, "sections": [4, 2, 2]}, "buffer": "dense",
     "optimizer": {"names": ["exp_avg"]}},
    {"name": "norm", "shape": [4], "layer": "last", "change": "volatile", "role": "other"}
  ]
})";

TEST(LayoutFileTest, OneEntryMayStandForManyTensors) {
  const auto file = ParseLayout("small.json", kSmall);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> names;
  for (const LogicalTensor& t : file->layout.tensors()) names.push_back(t.name);
  EXPECT_THAT(names, ElementsAre("layers.0.qkv", "layers.0.qkv/exp_avg", "layers.1.qkv",
                                 "layers.1.qkv/exp_avg", "norm"));
  const LogicalTensor& moment = file->layout.tensors()[3];
  EXPECT_EQ(moment.role, Role::kOptimizer);
  EXPECT_EQ(moment.element_bytes, 4u);
  EXPECT_EQ(moment.layer, 1u);
  EXPECT_EQ(moment.buffer, "dense/exp_avg");
  EXPECT_EQ(file->seats[3].node, 1u);
}

TEST(LayoutFileTest, RefusesTwoTensorsOfOneName) {
  const auto twice = ParseLayout("twice.json", R"({"parallel": {}, "tensors": [
    {"name": "w", "shape": [4], "element_bytes": 2},
    {"name": "w", "shape": [8], "element_bytes": 2}]})");
  EXPECT_EQ(twice.status().message(),
            "twice.json:3:5: tensor w: another tensor of the file has this name");
  const auto each = ParseLayout("each.json", R"({"parallel": {"layers": 2}, "tensors": [
    {"name": "w", "shape": [4], "element_bytes": 2, "layer": "each"}]})");
  EXPECT_THAT(std::string(each.status().message()), HasSubstr("each.json:2:5: tensor w: another"));
}

TEST(LayoutFileTest, WhatIsWrittenIsRead) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    AnyLayout any(seed);
    const Parallel parallel = any.NewParallel();
    std::vector<LogicalTensor> tensors;
    for (uint64_t n = any.In(1, 3); n > 0; --n) {
      tensors.push_back(any.NewTensor(parallel));
      tensors.back().name = absl::StrCat("t", n, "\n\"");
      if (tensors.back().stages != Stages::kLayer) tensors.back().layer = 0;
      tensors.back().position = static_cast<uint32_t>(tensors.size() - 1);
    }
    auto layout = ParallelLayout::Make(parallel, any.NewZero(), tensors);
    ASSERT_TRUE(layout.ok());
    LayoutFile file{*std::move(layout), {}};
    for (uint32_t slot = 0; slot < parallel.slots(); ++slot) file.seats.push_back({slot + 5, 0});
    const auto again = ParseLayout("again.json", ToJson(file).dump());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->layout.parallel(), file.layout.parallel());
    EXPECT_EQ(again->layout.zero(), file.layout.zero());
    EXPECT_EQ(again->layout.tensors(), file.layout.tensors());
    EXPECT_EQ(again->seats[0].member, 5u);
  }
}

TEST(LayoutFileTest, ErrorsNameTheLineAndTheColumn) {
  const auto expect = [](const std::string& from, const std::string& to, const std::string& error) {
    std::string text = kSmall;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    EXPECT_THAT(ParseLayout("small.json", text).status().message(),
                HasSubstr("small.json:" + error))
        << to;
  };
  expect("\"tensor\": 2", "\"tensor\": -2", "2:26: tensor=-2: must be a whole number in [0, ");
  expect("\"tensor\": 2", "\"tensor\": 2.5", "2:26: tensor=2.5: must be a whole number");
  expect("\"tensor\": 2", "\"tensor\": 0", "2:15: parallel: tensor=0: must be in [1, ");
  expect("\"tensor\": 2", "\"tensor\": 2, \"tensor\": 2", "2:29: \"tensor\" twice");
  expect("\"data\"", "\"date\"", "2:29: \"date\": is not known: must be one of context, data, ");
  expect("\"buffer\", \"align\"", "\"bufer\", \"align\"",
         "3:31: way=\"bufer\": must be one of rows,");
  expect("\"slots_per_node\": 2", "\"slots_per_node\": 0", "4:21: slots_per_node=0: must be");
  expect("\"name\": \"norm\", ", "", "9:5: \"name\" is missing");
  expect("[8, 4]", "8", "6:45: shape=8: must be an array");
  expect("[8, 4]", "[8, \"4\"]", "6:49: shape=\"4\": must be a whole number");
  expect("\"sections\": [4, 2, 2]", "\"sections\": [4, 2]", "6:5: layout: tensor layers.0.qkv: ");
  expect("\"shape\": [4],", "\"shape\": [4]", "9:35: is not JSON");
  expect("\"layers\": 2", "\"layers\": 0", "6:5: layer=\"each\": needs parallel.layers");
  expect("\"layers\": 2", "\"layers\": 4294967295", "2:15: parallel: layers=4294967295: must be");
  expect("\"stage\": 1", "\"stage\": 9", "3:11: zero: stage=9: must be in [0, 3]");
  expect("\"align\": 4", "\"align\": 9223372036854775808", "3:11: zero: align=9223372036854775808");
  expect("\"slots_per_node\": 2", "\"members\": []", "4:14: members: 0 numbers: must be the 4");
  expect("\"data\": 2", "\"data\": [2]", "2:37: data=an array: must be a whole number");
  expect("\"slots_per_node\": 2", "\"members\": [1]",
         "4:14: members: 1 numbers: must be the 4 slots");
  expect("\"slots_per_node\": 2", "\"members\": 5", "4:14: members=5: must be an array");
  expect("}\n  ]\n}", "}\n  ]\n", "11:1: is not JSON");
  EXPECT_THAT(ParseLayout("x", "").status().message(), HasSubstr("x:1:1: is not JSON"));
  EXPECT_THAT(ParseLayout("x", "[]").status().message(), HasSubstr("x:1:1: must be an object"));
  EXPECT_THAT(ParseLayout("x", std::string(100, '[')).status().message(),
              HasSubstr("x:1:65: nests deeper than 64 levels"));
}

}  // namespace
}  // namespace rewire::state
