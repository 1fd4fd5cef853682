#include "reconfig/moe/plan/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Experts 0 and 1 on device 0, 2 on device 1, 3 on device 2.
const Batch kBatch{3, {50, 30, 10, 0}, {0, 0, 1, 2}, {1, 0, 1, 1}};

std::string Wrong(const MovePlan& plan, const Budget& budget = {}) {
  return std::string(Check(kBatch, plan, budget).message());
}

TEST(BatchTest, LoadsBeforeAndAfter) {
  EXPECT_THAT(Loads(kBatch), ElementsAre(80, 10, 0));
  const MovePlan plan = {{0, 2, 20, 30}, {0, 1, 0, 20}};
  ASSERT_TRUE(Check(kBatch, plan, {}).ok());
  EXPECT_THAT(Loads(kBatch, plan), ElementsAre(30, 30, 30));
  EXPECT_EQ(Straggler(Loads(kBatch)), 50U);
  EXPECT_EQ(Straggler(Loads(kBatch, plan)), 0U);
  EXPECT_EQ(Straggler({}), 0U);
}

TEST(BatchTest, WhatIsWrongWithABatchIsNamed) {
  EXPECT_TRUE(Check(kBatch).ok());
  EXPECT_THAT(std::string(Check(Batch{}).message()), HasSubstr("no devices"));
  Batch b = kBatch;
  b.owner[2] = 3;
  EXPECT_EQ(Check(b).message(), "expert 2 is owned by device 3 of 3");
  b.owner.pop_back();
  EXPECT_EQ(Check(b).message(), "4 experts, but 3 owners and 4 marks of dynamic ones");
}

TEST(BatchTest, WhatIsWrongWithAPlanIsNamed) {
  EXPECT_EQ(Wrong({{0, 1, 0, 51}}), "expert 0 to device 1: tokens up to 51 of 50");
  EXPECT_EQ(Wrong({{0, 1, UINT32_MAX, 2}}), "expert 0 to device 1: tokens up to 4294967297 of 50");
  EXPECT_EQ(Wrong({{0, 1, 0, 0}}), "expert 0 to device 1: no tokens");
  EXPECT_EQ(Wrong({{0, 0, 0, 1}}), "expert 0 to device 0: it is there");
  EXPECT_EQ(Wrong({{1, 1, 0, 1}}), "expert 1 to device 1: the expert is not dynamic");
  EXPECT_EQ(Wrong({{4, 1, 0, 1}}), "expert 4 to device 1: there is no such");
  EXPECT_EQ(Wrong({{0, 3, 0, 1}}), "expert 0 to device 3: there is no such");
  EXPECT_EQ(Wrong({{0, 1, 0, 2}, {0, 2, 1, 2}}), "expert 0 to device 2: tokens twice");
  EXPECT_EQ(Wrong({{0, 1, 0, 2}, {0, 2, 2, 2}, {0, 1, 4, 2}}), "expert 0 to device 1: two copies");
  EXPECT_EQ(Wrong({{0, 1, 0, 2}, {0, 2, 2, 2}}, {1, 8}),
            "2 copies, but no more than 1 are allowed");
  EXPECT_EQ(Wrong({{0, 1, 0, 2}}, {8, 0}), "expert 0 to device 1: it has room for 0 experts");
}

TEST(BatchTest, DifferentPlansHaveDifferentHashes) {
  const Move m{1, 2, 3, 4};
  EXPECT_EQ(Hash({m}), Hash({m}));
  EXPECT_NE(Hash({m}), Hash({{2, 1, 3, 4}}));
  EXPECT_NE(Hash({m}), Hash({{1, 2, 4, 3}}));
  EXPECT_NE(Hash({m}), Hash({m, m}));
  EXPECT_NE(Hash({}), Hash({{}}));
}

}  // namespace
}  // namespace rewire::moe
