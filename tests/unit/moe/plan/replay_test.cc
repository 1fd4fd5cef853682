#include "reconfig/moe/plan/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>

#include "reconfig/moe/plan/node_tokens.h"
#include "tests/unit/moe/plan/loads.h"

namespace rewire::moe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Replay, PlansKeepAllTokensAndNeverRaiseTheBusiestLoad) {
  EXPECT_TRUE(rc::check([] {
    ReplayOptions options;
    options.shape = {{*rc::gen::inRange(1U, 4U), *rc::gen::inRange(1U, 6U)},
                     *rc::gen::inRange(1U, 20U)};
    const uint32_t devices = options.shape.topology.devices(), experts = options.shape.experts;
    options.plan = *rc::gen::element(ReplayPlan::kNone, ReplayPlan::kGreedy, ReplayPlan::kSplit,
                                     ReplayPlan::kBalance, ReplayPlan::kLaer, ReplayPlan::kRelayout,
                                     ReplayPlan::kComposed);
    if (*rc::gen::arbitrary<bool>()) {
      options.capacity = (experts + devices - 1) / devices + *rc::gen::inRange(0U, 3U);
    }
    auto replay = Replay::Create(options);
    RC_ASSERT(replay.ok());
    for (uint64_t i = 0; i < 4; ++i) {
      Recorded recorded{i, *rc::gen::inRange(0U, 2U), Counts(devices, experts)};
      for (uint32_t& t : recorded.counts.tokens()) t = *rc::gen::inRange(0U, 1000U);
      const auto& tokens = recorded.counts.tokens();
      const auto replayed = replay->Next(recorded);
      RC_ASSERT(replayed.ok());
      RC_ASSERT(replayed->before.size() == devices);
      RC_ASSERT(replayed->after.size() == devices);
      RC_ASSERT(Sum(replayed->before) ==
                std::accumulate(tokens.begin(), tokens.end(), uint64_t{0}));
      RC_ASSERT(Sum(replayed->after) == Sum(replayed->before));
      if (options.plan == ReplayPlan::kGreedy || options.plan == ReplayPlan::kBalance) {
        RC_ASSERT(Most(replayed->after) <= Most(replayed->before));
      }
      if (options.plan == ReplayPlan::kNone) RC_ASSERT(replayed->after == replayed->before);
    }
  }));
}

// All tokens are for device 0's experts.
Recorded Hot(uint32_t layer) {
  Recorded hot{0, layer, Counts(2, 4)};
  for (uint32_t d = 0; d < 2; ++d) {
    hot.counts.at(d, 0) = 100;
    hot.counts.at(d, 1) = 50;
  }
  return hot;
}

TEST(Replay, PlacesExpertsInOrderAndPlansMoveThem) {
  ReplayOptions options;
  options.shape = {{1, 2}, 4};
  options.plan = ReplayPlan::kGreedy;
  auto greedy = Replay::Create(options);
  ASSERT_TRUE(greedy.ok());
  const auto by_greedy = greedy->Next(Hot(0));
  ASSERT_TRUE(by_greedy.ok());
  EXPECT_THAT(by_greedy->before, ElementsAre(300, 0));
  EXPECT_THAT(by_greedy->after, ElementsAre(100, 200));
  EXPECT_EQ(by_greedy->copied.experts, 1U);
  EXPECT_EQ(by_greedy->copied.tokens, 200U);
  options.plan = ReplayPlan::kBalance;
  auto balance = Replay::Create(options);
  ASSERT_TRUE(balance.ok());
  EXPECT_THAT(balance->Next(Hot(0))->after, ElementsAre(150, 150));
}

TEST(Replay, RelayoutUsesEarlierMicroBatchesOfTheLayer) {
  ReplayOptions options;
  options.shape = {{1, 2}, 4};
  options.plan = ReplayPlan::kRelayout;
  auto replay = Replay::Create(options);
  ASSERT_TRUE(replay.ok());
  EXPECT_THAT(replay->Next(Hot(0))->after, ElementsAre(300, 0));
  EXPECT_EQ(Most(replay->Next(Hot(0))->after), 200U);
  EXPECT_THAT(replay->Next(Hot(1))->after, ElementsAre(300, 0));
}

TEST(Replay, RepeatsExpertsIfThereAreMoreSlots) {
  ReplayOptions options;
  options.shape = {{1, 2}, 4};
  options.capacity = 4;
  auto replay = Replay::Create(options);
  ASSERT_TRUE(replay.ok());
  EXPECT_THAT(replay->Next(Hot(0))->before, ElementsAre(150, 150));
  // The spare room is too small for another replica of every expert, and stays empty.
  options.capacity = 3;
  EXPECT_THAT(Replay::Create(options)->Next(Hot(0))->before, ElementsAre(300, 0));
  options.capacity = 1;
  EXPECT_EQ(Replay::Create(options).status().message(),
            "capacity=1: slots of 2 devices=2: must be at least 4 (experts) and at most 2^24");
}

}  // namespace
}  // namespace rewire::moe
