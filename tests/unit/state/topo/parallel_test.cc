#include "reconfig/state/topo/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace rewire::state {
namespace {

using ::testing::HasSubstr;

// Megatron-Core's RankGenerator, tp=2 dp=2 pp=2 in its default order: the tensor-parallel groups
// are 0-1, 2-3, ..., the data-parallel ones 0-2, 1-3, ..., and the pipelines 0-4, 1-5, ...
TEST(ParallelTest, PlacesSlotsAsMegatronDoes) {
  Parallel p;
  p.tensor = p.data = p.pipeline = 2;
  ASSERT_TRUE(Check(p).ok());
  EXPECT_EQ(PlaceOf(p, 1), (Place{1, 0, 0, 0}));
  EXPECT_EQ(PlaceOf(p, 2), (Place{0, 0, 0, 1}));
  EXPECT_EQ(PlaceOf(p, 7), (Place{1, 0, 1, 1}));
}

// PipeModelDataParallelTopology has the axes pipe, data, model, of which the last is the fastest.
TEST(ParallelTest, PlacesSlotsAsDeepSpeedDoes) {
  Parallel p;
  p.tensor = 2;
  p.data = 3;
  p.pipeline = 2;
  p.order = "tp-dp-pp";
  ASSERT_TRUE(Check(p).ok());
  EXPECT_EQ(PlaceOf(p, 5), (Place{1, 0, 0, 2}));
  EXPECT_EQ(PlaceOf(p, 6), (Place{0, 0, 1, 0}));
}

TEST(ParallelTest, ExpertLayersHaveTheirOwnPlaces) {
  Parallel p;
  p.tensor = 2;
  p.data = 4;
  p.expert = 4;
  ASSERT_TRUE(Check(p).ok());
  EXPECT_EQ(p.expert_data(), 2u);
  EXPECT_EQ(ExpertPlaceOf(p, 3), (Place{0, 3, 0, 0}));
  EXPECT_EQ(ExpertPlaceOf(p, 4), (Place{0, 0, 0, 1}));
  EXPECT_EQ(PlaceOf(p, 3), (Place{1, 0, 0, 1}));
}

TEST(ParallelTest, ShardsOfContextAndDataAreNumberedTogether) {
  Parallel p;
  p.tensor = 2;
  p.context = 2;
  p.data = 2;
  EXPECT_EQ(PlaceOf(p, 2), (Place{0, 0, 0, 1}));
  EXPECT_EQ(PlaceOf(p, 4), (Place{0, 0, 0, 2}));
  EXPECT_EQ(PlaceOf(p, 6), (Place{0, 0, 0, 3}));
}

TEST(ParallelTest, LayersAreInRunsOfEqualOrGivenLengths) {
  Parallel p;
  p.pipeline = 2;
  p.virtual_stages = 2;
  p.layers = 8;
  std::vector<uint32_t> stages;
  for (uint32_t layer = 0; layer < 8; ++layer) stages.push_back(StageOf(p, layer));
  EXPECT_EQ(stages, (std::vector<uint32_t>{0, 0, 1, 1, 0, 0, 1, 1}));
  p.split = {1, 3, 0, 4};
  ASSERT_TRUE(Check(p).ok());
  stages.clear();
  for (uint32_t layer = 0; layer < 8; ++layer) stages.push_back(StageOf(p, layer));
  EXPECT_EQ(stages, (std::vector<uint32_t>{0, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(ParallelTest, ErrorsNameTheFieldItsValueAndTheRange) {
  const auto expect = [](const std::function<void(Parallel*)>& change, const char* text) {
    Parallel p;
    p.data = 4;
    change(&p);
    EXPECT_THAT(Check(p).message(), HasSubstr(text));
  };
  expect([](Parallel* p) { p->tensor = 0; }, "tensor=0: must be in [1,");
  expect([](Parallel* p) { p->tensor = p->context = 1 << 18; }, "must be at most 262144");
  expect([](Parallel* p) { p->layers = 1 << 20; }, "layers=1048576: must be at most 65536");
  expect([](Parallel* p) { p->expert = 3; }, "expert * expert_tensor=3: must divide");
  expect([](Parallel* p) { p->order = "dp-dp"; }, "order=dp-dp: must have each of");
  expect([](Parallel* p) { p->order = "tp-xp"; }, "order=tp-xp: must have each of");
  expect([](Parallel* p) { p->order = "tp"; }, "order=tp: lacks dp, which has 4 places");
  expect([](Parallel* p) { p->layers = 3, p->pipeline = 2; }, "layers=3: must be a multiple");
  expect([](Parallel* p) { p->split = {1, 2}; }, "split=2 numbers: must be pipeline");
  expect([](Parallel* p) { p->layers = 3, p->split = {2}; }, "split=a sum of 2: must be layers");
  Parallel p;
  p.tensor = p.expert = p.pipeline = 2;
  p.data = 4;
  p.order = "tp-pp-dp-ep";
  EXPECT_TRUE(Check(p).ok());
  EXPECT_THAT(CheckExperts(p).message(), HasSubstr("gives expert layers other stages"));
}

}  // namespace
}  // namespace rewire::state
