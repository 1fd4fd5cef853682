#include "reconfig/moe/plan/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Experts 0 and 1 on device 0, 2 on device 1, 3 on device 2.
const Batch kBatch{3, {50, 30, 10, 0}, {0, 0, 1, 2}, {1, 0, 1, 1}};

std::string Wrong(const MovePlan& plan, const Budget& budget = {}) {
  return std::string(Check(kBatch, plan, budget).message());
}

TEST(BatchTest, ComputesLoadsBeforeAndAfterPlan) {
  EXPECT_THAT(Loads(kBatch), ElementsAre(80, 10, 0));
  const MovePlan plan = {{0, 2, 20, 30}, {0, 1, 0, 20}};
  ASSERT_TRUE(Check(kBatch, plan, {}).ok());
  EXPECT_THAT(Loads(kBatch, plan), ElementsAre(30, 30, 30));
  EXPECT_EQ(Straggler(Loads(kBatch)), 50U);
  EXPECT_EQ(Straggler(Loads(kBatch, plan)), 0U);
  EXPECT_EQ(Straggler({}), 0U);
}

TEST(BatchTest, RejectsInvalidBatch) {
  EXPECT_TRUE(Check(kBatch).ok());
  EXPECT_THAT(std::string(Check(Batch{}).message()), HasSubstr("devices=0"));
  Batch b = kBatch;
  b.owner[2] = 3;
  EXPECT_EQ(Check(b).message(), "batch: expert 2: owner=3: must be below devices=3");
  b.owner.pop_back();
  EXPECT_EQ(Check(b).message(), "batch: owners=3 dynamic marks=4: must each be 4 (experts)");
}

TEST(BatchTest, RejectsInvalidPlan) {
  EXPECT_EQ(Wrong({{0, 1, 0, 51}}), "expert 0 to device 1: tokens up to 51: must be at most 50");
  EXPECT_EQ(Wrong({{0, 1, UINT32_MAX, 2}}),
            "expert 0 to device 1: tokens up to 4294967297: must be at most 50");
  EXPECT_EQ(Wrong({{0, 1, 0, 0}}), "expert 0 to device 1: tokens=0: must be at least 1");
  EXPECT_EQ(Wrong({{0, 0, 0, 1}}), "expert 0 to device 0: the expert is already there");
  EXPECT_EQ(Wrong({{1, 1, 0, 1}}), "expert 1 to device 1: the expert is not dynamic");
  EXPECT_EQ(Wrong({{4, 1, 0, 1}}), "expert 4 to device 1: no such expert or device");
  EXPECT_EQ(Wrong({{0, 3, 0, 1}}), "expert 0 to device 3: no such expert or device");
  EXPECT_EQ(Wrong({{0, 1, 0, 2}, {0, 2, 1, 2}}), "expert 0 to device 2: tokens are moved twice");
  EXPECT_EQ(Wrong({{0, 1, 0, 2}, {0, 2, 2, 2}, {0, 1, 4, 2}}),
            "expert 0 to device 1: two copies of the expert");
  EXPECT_EQ(Wrong({{0, 1, 0, 2}, {0, 2, 2, 2}}, {1, 8}), "plan: copies=2: must be at most 1");
  EXPECT_EQ(Wrong({{0, 1, 0, 2}}, {8, 0}),
            "expert 0 to device 1: the device has slots for 0 experts");
}

TEST(BatchTest, DifferentPlansHaveDifferentHashes) {
  const Move m{1, 2, 3, 4};
  EXPECT_EQ(Hash(MovePlan{m}), Hash(MovePlan{m}));
  EXPECT_NE(Hash(MovePlan{m}), Hash(MovePlan{{2, 1, 3, 4}}));
  EXPECT_NE(Hash(MovePlan{m}), Hash(MovePlan{{1, 2, 4, 3}}));
  EXPECT_NE(Hash(MovePlan{m}), Hash(MovePlan{m, m}));
  EXPECT_NE(Hash(MovePlan{}), Hash(MovePlan{{}}));
}

TEST(DynamicExpertsTest, ChoosesExpertsWithMostTokens) {
  const std::vector<uint32_t> tokens = {5, 90, 9, 7, 9};
  EXPECT_THAT(ChooseDynamic(tokens, 1), ElementsAre(0, 1, 0, 0, 0));
  EXPECT_THAT(ChooseDynamic(tokens, 2), ElementsAre(0, 1, 1, 0, 0));
  EXPECT_THAT(ChooseDynamic(tokens, 4), ElementsAre(0, 1, 1, 1, 1));
}

TEST(DynamicExpertsTest, ChoosesMoreUntilTheyHoldHalfOfTheTokens) {
  const std::vector<uint32_t> tokens = {3, 5, 4, 5, 3};
  EXPECT_THAT(ChooseDynamic(tokens, 1), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(ChooseDynamic(tokens, 3), ElementsAre(0, 1, 1, 1, 0));
}

TEST(DynamicExpertsTest, ChoosesAllExpertsIfThereAreFewer) {
  const std::vector<uint32_t> tokens = {0, 3};
  EXPECT_THAT(ChooseDynamic(tokens, 4), ElementsAre(1, 1));
  EXPECT_THAT(ChooseDynamic({}, 4), IsEmpty());
}

}  // namespace
}  // namespace rewire::moe
