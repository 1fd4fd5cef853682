#include "reconfig/state/topo/slot_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace rewire::state {
namespace {

using ::testing::HasSubstr;
using Groups = std::vector<std::vector<uint32_t>>;
using Sizes = std::map<std::string, uint32_t>;  // by the axis' name in the order

Groups AllOf(const Parallel& p, const std::string& axes) {
  EXPECT_TRUE(Check(p).ok()) << Check(p);
  const absl::StatusOr<SlotGroups> groups = SlotGroups::Along(p, axes);
  EXPECT_TRUE(groups.ok()) << groups.status();
  std::set<std::vector<uint32_t>> all;
  for (uint32_t slot = 0; groups.ok() && slot < p.slots(); ++slot) {
    const absl::StatusOr<std::vector<uint32_t>> group = groups->GroupOf(slot);
    EXPECT_TRUE(group.ok()) << group.status();
    if (group.ok()) all.insert(*group);
  }
  return {all.begin(), all.end()};
}

// RankGenerator.get_ranks() of Megatron-Core gives these groups.
TEST(SlotGroupsTest, AreThoseOfMegatron) {
  Parallel p;
  p.tensor = p.context = p.data = p.pipeline = 2;
  EXPECT_EQ(AllOf(p, "tp"),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(AllOf(p, "cp"),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(AllOf(p, "dp"),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(AllOf(p, "pp"),
            (Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
  EXPECT_EQ(AllOf(p, "dp-cp"),
            (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(AllOf(p, "tp-pp"),
            (Groups{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}}));
  EXPECT_EQ(AllOf(p, "tp-dp-cp"),
            (Groups{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
  EXPECT_EQ(AllOf(p, "cp-dp"), AllOf(p, "dp-cp"));
}

TEST(SlotGroupsTest, AreThoseOfMegatronWithThePipelineBeforeData) {
  Parallel p;
  p.tensor = p.data = p.pipeline = 2;
  p.order = "tp-pp-dp";
  EXPECT_EQ(AllOf(p, "dp"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(AllOf(p, "pp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(AllOf(p, "tp-dp"), (Groups{{0, 1, 4, 5}, {2, 3, 6, 7}}));
}

// PipeModelDataParallelTopology(num_pp=2, num_mp=2, num_dp=3).get_axis_comm_lists() gives these.
TEST(SlotGroupsTest, AreThoseOfDeepSpeed) {
  Parallel p;
  p.tensor = p.pipeline = 2;
  p.data = 3;
  p.order = "tp-dp-pp";
  EXPECT_EQ(AllOf(p, "tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}));
  EXPECT_EQ(AllOf(p, "dp"), (Groups{{0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}}));
  EXPECT_EQ(AllOf(p, "pp"), (Groups{{0, 6}, {1, 7}, {2, 8}, {3, 9}, {4, 10}, {5, 11}}));
}

TEST(SlotGroupsTest, LayersWithExpertsHaveTheirOwn) {
  Parallel p;
  p.tensor = p.context = p.data = p.pipeline = 2;
  p.expert = p.expert_tensor = 2;
  EXPECT_EQ(AllOf(p, "etp"), AllOf(p, "tp"));
  EXPECT_EQ(AllOf(p, "ep"), AllOf(p, "cp"));
  EXPECT_EQ(AllOf(p, "edp"), AllOf(p, "dp"));
  p.expert_tensor = 1;
  p.expert = 4;
  EXPECT_EQ(AllOf(p, "ep"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(AllOf(p, "edp"), AllOf(p, "dp"));
  EXPECT_EQ(AllOf(p, "pp-ep-etp"), AllOf(p, "tp-cp-pp"));
}

TEST(SlotGroupsTest, ASlotIsAloneAlongAxesOfOnePlace) {
  Parallel p;
  p.data = 2;
  p.order = "dp";
  EXPECT_EQ(AllOf(p, "tp"), (Groups{{0}, {1}}));
  EXPECT_EQ(AllOf(p, "pp-cp"), (Groups{{0}, {1}}));
}

TEST(SlotGroupsTest, ASpareSlotIsAlone) {
  Parallel p;
  p.data = 2;
  p.spare = 2;
  EXPECT_EQ(AllOf(p, "dp"), (Groups{{0, 1}, {2}, {3}}));
  EXPECT_EQ(AllOf(p, "ep"), (Groups{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(AllOf(p, "edp"), (Groups{{0, 1}, {2}, {3}}));
}

TEST(SlotGroupsTest, ErrorsNameTheFieldItsValueAndTheRange) {
  Parallel p;
  p.tensor = p.pipeline = 2;
  p.data = 4;
  for (const char* axes :
       {"", "tp-xx", "xx", "tp-", "-", "tp-tp", "tp-ep", "edp-cp", "pp-dp-etp", "TP", "tp,dp"}) {
    const absl::StatusOr<SlotGroups> groups = SlotGroups::Along(p, axes);
    EXPECT_EQ(groups.status().code(), absl::StatusCode::kInvalidArgument) << axes;
    EXPECT_THAT(groups.status().message(),
                HasSubstr("axes=" + std::string(axes) + ": must be some of tp, cp,"));
  }
  p.spare = 1;
  const absl::StatusOr<SlotGroups> groups = SlotGroups::Along(p, "tp");
  ASSERT_TRUE(groups.ok());
  EXPECT_TRUE(groups->GroupOf(16).ok());
  EXPECT_THAT(groups->GroupOf(17).status().message(), HasSubstr("slot=17: must be below 17"));
}

TEST(SlotGroupsTest, LayersWithExpertsMustHaveTheStagesOfTheOthers) {
  Parallel p;
  p.tensor = p.expert = p.pipeline = 2;
  p.data = 4;
  p.order = "tp-pp-dp-ep";
  EXPECT_THAT(SlotGroups::Along(p, "ep").status().message(),
              HasSubstr("gives expert layers other stages"));
  EXPECT_TRUE(SlotGroups::Along(p, "tp").ok());
  EXPECT_TRUE(SlotGroups::Along(p, "pp").ok());
}

TEST(SlotGroupsTest, OneGroupOfManySlotsIsFound) {
  Parallel p;
  p.tensor = 8;
  p.pipeline = 16;
  p.data = 1024;
  const absl::StatusOr<SlotGroups> groups = SlotGroups::Along(p, "dp");
  ASSERT_TRUE(groups.ok());
  const absl::StatusOr<std::vector<uint32_t>> group = groups->GroupOf(131071);
  ASSERT_TRUE(group.ok());
  ASSERT_EQ(group->size(), 1024u);
  for (uint32_t i = 0; i < 1024; ++i) ASSERT_EQ((*group)[i], 15 * 8192 + 8 * i + 7);
}

// Returns the groups by comparing the coordinates of each slot on all other axes.
Groups ByComparison(const Parallel& p, const Sizes& sizes, const std::set<std::string>& along) {
  std::map<std::vector<uint32_t>, std::vector<uint32_t>> groups;
  for (uint32_t slot = 0; slot < p.working(); ++slot) {
    std::vector<uint32_t> others;
    uint32_t rest = slot;
    for (const std::string& axis : std::vector<std::string>(absl::StrSplit(p.order, '-'))) {
      if (along.count(axis) == 0) others.push_back(rest % sizes.at(axis));
      rest /= sizes.at(axis);
    }
    groups[others].push_back(slot);
  }
  Groups all;
  for (const auto& [others, group] : groups) all.push_back(group);
  std::sort(all.begin(), all.end());
  return all;
}

// Checks each set of axes. names: of the axes in the text, by their names in the order.
void ExpectGroups(const Parallel& p, const Sizes& sizes,
                  const std::map<std::string, std::string>& names) {
  for (uint32_t set = 1; set < 1u << names.size(); ++set) {
    std::set<std::string> along;
    std::vector<std::string> text;
    uint32_t ranks = 1, bit = 0;
    for (const auto& [axis, name] : names) {
      if ((set >> bit++ & 1) == 0) continue;
      along.insert(axis);
      text.push_back(name);
      ranks *= sizes.at(axis);
    }
    const std::string axes = absl::StrJoin(text, "-");
    const Groups all = AllOf(p, axes);
    ASSERT_EQ(all, ByComparison(p, sizes, along)) << p.order << " " << axes;
    const absl::StatusOr<SlotGroups> groups = SlotGroups::Along(p, axes);
    std::vector<int> seen(p.working());
    for (const std::vector<uint32_t>& group : all) {
      EXPECT_EQ(group.size(), ranks) << p.order << " " << axes;
      for (const uint32_t slot : group) {
        ++seen[slot];
        EXPECT_EQ(*groups->GroupOf(slot), group) << p.order << " " << axes;
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), p.working()) << p.order << " " << axes;
  }
}

TEST(SlotGroupsTest, PartitionTheSlotsOfEachOrderAndEachSetOfAxes) {
  std::vector<std::string> order = {"cp", "dp", "ep", "pp", "tp"};  // sorted, for the permutations
  Parallel p;
  p.tensor = p.context = p.pipeline = 2;
  p.data = p.expert = 3;
  p.expert_tensor = 2;
  do {
    p.order = absl::StrJoin(order, "-");
    ExpectGroups(p, {{"tp", 2}, {"cp", 2}, {"ep", 1}, {"dp", 3}, {"pp", 2}},
                 {{"tp", "tp"}, {"cp", "cp"}, {"dp", "dp"}, {"pp", "pp"}});
    if (!CheckExperts(p).ok()) continue;
    ExpectGroups(p, {{"tp", 2}, {"cp", 1}, {"ep", 3}, {"dp", 2}, {"pp", 2}},
                 {{"tp", "etp"}, {"ep", "ep"}, {"dp", "edp"}, {"pp", "pp"}});
  } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace
}  // namespace rewire::state
