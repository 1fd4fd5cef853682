// Properties of every planner for a micro-batch, for any input.
#include "reconfig/moe/plan/planners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "bench/moe/eplb.h"
#include "bench/moe/shadowing.h"
#include "tests/unit/moe/plan/any_batch.h"
#include "tests/unit/moe/plan/loads.h"

namespace rewire::moe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Budget kNoBudget{UINT32_MAX, UINT32_MAX};

// Checks that the plan can be carried out, and that no token is lost or doubled.
void Sound(const Batch& batch, const MovePlan& plan, const Budget& budget) {
  const absl::Status status = Check(batch, plan, budget);
  RC_ASSERT(status == absl::OkStatus());
  RC_ASSERT(Sum(Loads(batch, plan)) == Sum(Loads(batch)));
}

TEST(Greedy, MovesWholeExpertsAndNeverRaisesTheBusiestLoad) {
  EXPECT_TRUE(rc::check([] {
    const Batch batch = AnyBatch();
    const GreedyOptions options{AnyBudget(), *rc::gen::inRange<uint32_t>(0, 50)};
    const MovePlan plan = GreedyMoves(batch, options);
    Sound(batch, plan, options.budget);
    for (const Move& m : plan) {
      RC_ASSERT(m.tokens == batch.tokens[m.expert]);
      RC_ASSERT(m.tokens >= options.least);
    }
    RC_ASSERT(Most(Loads(batch, plan)) <= Most(Loads(batch)));
    RC_ASSERT(Hash(plan) == Hash(GreedyMoves(batch, options)));
  }));
}

TEST(Greedy, TakesTheBusiestThatHelpsAndBreaksTiesByNumber) {
  const Batch batch{3, {60, 60, 90, 0, 0}, {0, 0, 0, 1, 2}, {1, 1, 1, 1, 1}};
  EXPECT_THAT(GreedyMoves(batch, {}), ElementsAre(Move{2, 1, 0, 90}, Move{0, 2, 0, 60}));
  EXPECT_THAT(GreedyMoves(batch, {{1, 8}, 1}), ElementsAre(Move{2, 1, 0, 90}));
  EXPECT_THAT(GreedyMoves(batch, {{8, 8}, 91}), IsEmpty());
}

TEST(Balance, KeepsItsBudgetAndNeverRaisesTheBusiestLoad) {
  EXPECT_TRUE(rc::check([] {
    const Batch batch = AnyBatch();
    BalanceOptions options;
    options.budget = AnyBudget();
    options.gate_percent = *rc::gen::inRange<uint32_t>(100, 160);
    options.least = *rc::gen::inRange<uint32_t>(0, 50);
    const MovePlan plan = BalanceMoves(batch, options);
    Sound(batch, plan, options.budget);
    const uint64_t before = Most(Loads(batch));
    const uint64_t after = Most(Loads(batch, plan));
    RC_ASSERT(after <= before);
    RC_ASSERT(after >= LowestPossible(batch));
    if (before * batch.devices * 100 <= Sum(Loads(batch)) * options.gate_percent) {
      RC_ASSERT(plan.empty());
    }
    RC_ASSERT(Hash(plan) == Hash(BalanceMoves(batch, options)));
  }));
}

TEST(Balance, ReachesTheLowestLoadWithEnoughCopies) {
  EXPECT_TRUE(rc::check([] {
    Batch batch = AnyBatch();
    // One dynamic expert on each device holds all excess tokens.
    std::fill(batch.dynamic.begin(), batch.dynamic.end(), 0);
    for (uint32_t d = 0; d < batch.devices; ++d) {
      batch.tokens.push_back(*rc::gen::inRange<uint32_t>(0, 1U << 20));
      batch.owner.push_back(d);
      batch.dynamic.push_back(1);
    }
    BalanceOptions options;
    options.budget = {1000, 1000};
    const uint64_t lowest = LowestPossible(batch);
    const uint64_t after = Most(Loads(batch, BalanceMoves(batch, options)));
    RC_ASSERT(after <= lowest + lowest / 1024 + 1);
  }));
}

TEST(Balance, PrefersDevicesWithTheWeightsWithoutCountingACopy) {
  const Batch batch{3, {60, 30, 0, 0}, {0, 0, 1, 2}, {1, 1, 1, 1}};
  BalanceOptions options;
  options.budget.copies = 0;
  EXPECT_THAT(BalanceMoves(batch, options), IsEmpty());
  options.there = {0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0};  // expert 0 on 1 and 2, expert 1 on 2
  EXPECT_THAT(BalanceMoves(batch, options), ElementsAre(Move{0, 1, 30, 30}, Move{0, 2, 0, 30}));
}

TEST(Balance, KeepsItsBudgetBesidesMovesWithoutCopies) {
  EXPECT_TRUE(rc::check([] {
    const Batch batch = AnyBatch();
    BalanceOptions options;
    options.budget = AnyBudget();
    options.there = *rc::gen::container<std::vector<uint8_t>>(batch.devices * batch.tokens.size(),
                                                              rc::gen::element<uint8_t>(0, 0, 1));
    for (uint32_t e = 0; e < batch.tokens.size(); ++e) {
      options.there[batch.owner[e] * batch.tokens.size() + e] = 0;
    }
    const MovePlan plan = BalanceMoves(batch, options);
    Sound(batch, plan, {UINT32_MAX, options.budget.slots});
    RC_ASSERT(Most(Loads(batch, plan)) <= Most(Loads(batch)));
    const auto copies = std::count_if(plan.begin(), plan.end(), [&](const Move& m) {
      return options.there[m.to * batch.tokens.size() + m.expert] == 0;
    });
    RC_ASSERT(copies <= options.budget.copies);
  }));
}

TEST(Balance, CopiesNoExpertForFewerThanTheLeastTokens) {
  EXPECT_TRUE(rc::check([] {
    const Batch batch = AnyBatch();
    BalanceOptions options;
    options.budget = AnyBudget();
    options.least = *rc::gen::inRange<uint32_t>(1, 50);
    const MovePlan plan = BalanceMoves(batch, options);
    Sound(batch, plan, options.budget);
    for (const Move& move : plan) RC_ASSERT(move.tokens >= options.least);
  }));
}

TEST(Balance, PrefersAWholeExpertToAPart) {
  // Device 0 has 50 excess tokens, exactly the tokens of expert 0.
  const Batch batch{2, {50, 30, 40, 20}, {0, 0, 0, 1}, {1, 1, 1, 1}};
  EXPECT_THAT(BalanceMoves(batch, {}), ElementsAre(Move{0, 1, 0, 50}));
  const Batch other{2, {95, 20}, {0, 1}, {1, 1}};
  EXPECT_THAT(BalanceMoves(other, {}), ElementsAre(Move{0, 1, 58, 37}));
}

TEST(Balance, LeavesAnEvenBatchUnchanged) {
  const Batch batch{4, {7, 7, 7, 7}, {0, 1, 2, 3}, {1, 1, 1, 1}};
  EXPECT_THAT(BalanceMoves(batch, {}), IsEmpty());
  EXPECT_THAT(GreedyMoves(batch, {}), IsEmpty());
  EXPECT_THAT(SplitMoves(batch, {}), IsEmpty());
}

TEST(Split, KeepsAllTokensAndItsGate) {
  EXPECT_TRUE(rc::check([] {
    Batch batch = AnyBatch();
    std::fill(batch.dynamic.begin(), batch.dynamic.end(), 1);
    SplitOptions options;
    options.gate_percent = *rc::gen::inRange<uint32_t>(100, 200);
    options.capacity_percent = *rc::gen::inRange<uint32_t>(50, 200);
    options.least = *rc::gen::inRange<uint32_t>(0, 2000);
    const MovePlan plan = SplitMoves(batch, options);
    Sound(batch, plan, kNoBudget);
    const std::vector<uint64_t> before = Loads(batch);
    if (Most(before) * batch.devices * 100 < Sum(before) * options.gate_percent) {
      RC_ASSERT(plan.empty());
    }
  }));
}

TEST(Split, FillsDevicesToCapacityWithoutALeastChunk) {
  EXPECT_TRUE(rc::check([] {
    Batch batch = AnyBatch();
    std::fill(batch.dynamic.begin(), batch.dynamic.end(), 1);
    const MovePlan plan = SplitMoves(batch, {100, 100, 0});
    const uint64_t mean = Sum(Loads(batch)) / batch.devices;
    RC_ASSERT(Most(Loads(batch, plan)) <= mean + batch.devices);
    // Each chunk completes its expert or fills a device, which stays full.
    std::vector<uint32_t> moved;
    for (const Move& m : plan) moved.push_back(m.expert);
    std::sort(moved.begin(), moved.end());
    moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
    RC_ASSERT(plan.size() <= moved.size() + batch.devices);
  }));
}

// The target is 40 per device. The owner of expert 0 keeps room for its pending expert 1, and
// device 1 has its own pending tokens, so device 2 comes first.
TEST(Split, CountsPendingNativeTokensOnBothSides) {
  const Batch batch{3, {60, 20, 30, 10}, {0, 0, 1, 2}, {1, 1, 1, 1}};
  EXPECT_THAT(SplitMoves(batch, {100, 100, 1}),
              ElementsAre(Move{0, 2, 20, 30}, Move{0, 1, 50, 10}));
}

TEST(Split, SpillsALargeExpertRatherThanSeveralSmallOnes) {
  const Batch batch{
      2, {500, 100, 100, 100, 100, 100, 200}, {0, 0, 0, 0, 0, 0, 1}, std::vector<uint8_t>(7, 1)};
  EXPECT_THAT(SplitMoves(batch, {100, 100, 1}), ElementsAre(Move{0, 1, 100, 400}));
}

TEST(Split, GivesARestThatFitsNowhereToTheLeastLoadedDevice) {
  const Batch batch{3, {5500, 3200, 3300}, {0, 1, 2}, {1, 1, 1}};
  // Device 1 then has no room for all tokens of its own expert.
  EXPECT_THAT(SplitMoves(batch, {100, 100, 1024}),
              ElementsAre(Move{0, 1, 4000, 1500}, Move{1, 2, 2500, 700}));
  EXPECT_THAT(SplitMoves(batch, {100, 100, 700}),
              ElementsAre(Move{0, 1, 4000, 800}, Move{0, 2, 4800, 700}));
}

TEST(Split, MovesNothingBelowItsGate) {
  const Batch batch{2, {120, 80}, {0, 1}, {1, 1}};
  EXPECT_THAT(SplitMoves(batch, {130, 100, 1}), IsEmpty());
  EXPECT_THAT(SplitMoves(batch, {120, 100, 1}), ElementsAre(Move{0, 1, 100, 20}));
}

TEST(Split, SharesOneHotExpert) {
  const Batch batch{4, {8000, 0, 0, 0}, {0, 1, 2, 3}, {1, 1, 1, 1}};
  EXPECT_THAT(Loads(batch, SplitMoves(batch, {})), ElementsAre(2000, 2000, 2000, 2000));
}

TEST(Shadowing, TakesTokensHomeWhileThatPays) {
  const Batch batch{2, {1000, 600, 500}, {0, 0, 1}, {1, 1, 1}};
  const std::vector<uint32_t> by_source = {400, 300, 250, 600, 300, 250};
  const ShadowCost free{1, 0, 0};
  EXPECT_THAT(ChooseShadows(batch, by_source, free), ElementsAre(1, 0, 0));
  EXPECT_THAT(LoadsWithShadows(batch, by_source, {{1, 0, 0}}), ElementsAre(1000, 1100));
  const ShadowCost dear{1, 0, 100'000};
  EXPECT_THAT(ChooseShadows(batch, by_source, dear), ElementsAre(0, 0, 0));
}

TEST(Eplb, GivesHotExpertsReplicasAndPacksEvenly) {
  const std::vector<uint64_t> history = {90, 10, 10, 10, 10, 10, 10, 10};
  const std::vector<uint32_t> slots = PackReplicas(history, {1, 4, 3, 1});
  EXPECT_EQ(std::count(slots.begin(), slots.end(), 0), 5);
  const std::vector<uint32_t> tokens(history.begin(), history.end());
  const std::vector<uint64_t> loads = LoadsOfReplicas(tokens, slots, 4);
  EXPECT_EQ(Sum(loads), 160U);
  EXPECT_LE(Most(loads), 46U);
}

TEST(Eplb, GroupsStayOnTheirNode) {
  std::vector<uint64_t> history(16);
  for (size_t e = 0; e < history.size(); ++e) history[e] = 1 + e * e % 11;
  const std::vector<uint32_t> slots = PackReplicas(history, {2, 4, 5, 4});
  for (uint32_t group = 0; group < 4; ++group) {
    std::vector<int> on_node(2);
    for (size_t s = 0; s < slots.size(); ++s) {
      if (slots[s] / 4 == group) ++on_node[s / 10];
    }
    EXPECT_TRUE(on_node[0] == 0 || on_node[1] == 0) << group;
  }
}

}  // namespace
}  // namespace rewire::moe
