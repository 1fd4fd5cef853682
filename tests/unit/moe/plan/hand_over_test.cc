#include "reconfig/moe/plan/hand_over.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "reconfig/base/clock.h"

namespace rewire::moe {
namespace {

using ::testing::HasSubstr;

// Blocks planning: Open(plans) allows `plans` further plans.
class Gate {
 public:
  void Open(uint64_t plans) {
    MutexLock lock(&mutex_);
    open_ += plans;
    changed_.NotifyAll();
  }
  void Pass() {
    MutexLock lock(&mutex_);
    while (open_ == 0) changed_.WaitUntil(&mutex_, Now() + seconds(1));
    --open_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  uint64_t open_ REWIRE_GUARDED_BY(mutex_) = 0;
};

Counts Tokens(uint32_t tokens) {
  Counts counts(1, 1);
  counts.at(0, 0) = tokens;
  return counts;
}

// Returns a placement that encodes the counts of its plan.
Placement PlanOf(uint32_t tokens) { return {1, {tokens}}; }

// A rank whose plans wait at a gate.
struct Rank {
  explicit Rank(HandOver::Options options = {1, 100})
      : hand_over(std::make_unique<HandOver>(
            std::vector<Placement>{PlanOf(0)},
            [this](std::span<const Counts> iterations) -> absl::StatusOr<Placement> {
              gate.Pass();
              uint32_t tokens = 0;
              for (const Counts& c : iterations) tokens += c.at(0, 0);
              if (tokens == 13) return absl::InternalError("no plan of 13 tokens");
              return PlanOf(tokens);
            },
            options)) {}
  ~Rank() { gate.Open(1); }

  void Await(uint64_t epoch) {
    const Time deadline = Now() + seconds(30);
    while (hand_over->ready() < epoch && Now() < deadline) std::this_thread::yield();
    ASSERT_EQ(hand_over->ready(), epoch);
  }
  void Step(uint64_t iteration, uint32_t tokens, uint64_t ready) {
    const Counts counts = Tokens(tokens);
    ASSERT_TRUE(hand_over->Step(iteration, std::span(&counts, 1), ready).ok());
  }
  void StepAlone(uint64_t iteration, uint32_t tokens) {
    Step(iteration, tokens, hand_over->ready());
  }

  Gate gate;
  std::unique_ptr<HandOver> hand_over;
};

TEST(HandOverTest, AllRanksSwitchAtTheSameIteration) {
  Rank ranks[3];
  uint64_t iteration = 0;
  const auto step_all = [&] {
    uint64_t ready = UINT64_MAX;
    for (const Rank& r : ranks) ready = std::min(ready, r.hand_over->ready());
    ++iteration;
    for (Rank& r : ranks) r.Step(iteration, static_cast<uint32_t>(100 + iteration), ready);
    for (const Rank& r : ranks) {
      EXPECT_EQ(r.hand_over->epoch(), ranks[0].hand_over->epoch());
      EXPECT_EQ(r.hand_over->placement(0), ranks[0].hand_over->placement(0));
    }
  };
  step_all();  // requests plan 1
  // The ranks get the plan one after the other; none switches before the last has it.
  for (Rank& r : ranks) {
    EXPECT_EQ(ranks[0].hand_over->epoch(), 0u);
    r.gate.Open(1);
    r.Await(1);
    if (&r != &ranks[2]) step_all();
  }
  step_all();
  EXPECT_EQ(iteration, 4u);
  EXPECT_EQ(ranks[0].hand_over->epoch(), 1u);
  EXPECT_EQ(ranks[2].hand_over->placement(0), PlanOf(101));
  // Every rank makes the next plan from the newest counts of that time.
  for (Rank& r : ranks) {
    r.gate.Open(1);
    r.Await(4);
  }
  step_all();
  EXPECT_EQ(ranks[1].hand_over->epoch(), 4u);
  EXPECT_EQ(ranks[1].hand_over->placement(0), PlanOf(104));
}

TEST(HandOverTest, StepDoesNotWaitForThePlanner) {
  Rank rank;  // its gate stays closed to the end
  for (uint64_t i = 1; i <= 10'000; ++i) {
    rank.StepAlone(i, 7);
    ASSERT_EQ(rank.hand_over->placement(0), PlanOf(0));
  }
  EXPECT_EQ(rank.hand_over->epoch(), 0u);
}

TEST(HandOverTest, DropsOutdatedPlan) {
  Rank rank({1, 3});
  rank.StepAlone(1, 1);
  for (uint64_t i = 2; i <= 4; ++i) rank.StepAlone(i, 2);
  rank.gate.Open(1);
  rank.Await(1);
  rank.StepAlone(5, 5);
  EXPECT_EQ(rank.hand_over->late(), 1u);
  EXPECT_EQ(rank.hand_over->placement(0), PlanOf(0));
  rank.gate.Open(1);
  rank.Await(5);
  rank.StepAlone(8, 8);  // three iterations are within the limit
  EXPECT_EQ(rank.hand_over->late(), 1u);
  EXPECT_EQ(rank.hand_over->epoch(), 5u);
  EXPECT_EQ(rank.hand_over->placement(0), PlanOf(5));
}

TEST(HandOverTest, PlansFromTheLastIterations) {
  Rank rank({2, 100});
  rank.StepAlone(1, 1);
  rank.StepAlone(2, 10);
  rank.StepAlone(3, 100);
  rank.gate.Open(1);
  rank.Await(1);
  rank.StepAlone(4, 1000);
  EXPECT_EQ(rank.hand_over->placement(0), PlanOf(1));
  rank.gate.Open(1);
  rank.Await(4);
  rank.StepAlone(5, 0);
  EXPECT_EQ(rank.hand_over->placement(0), PlanOf(1100));
}

TEST(HandOverTest, KeepsPlacementsWithoutPlan) {
  Rank rank;
  rank.StepAlone(1, 13);
  rank.gate.Open(2);
  rank.Await(1);
  rank.StepAlone(2, 4);
  EXPECT_THAT(rank.hand_over->error().ToString(), HasSubstr("no plan of 13 tokens"));
  EXPECT_EQ(rank.hand_over->placement(0), PlanOf(0));
  rank.Await(2);
  rank.StepAlone(3, 5);
  EXPECT_TRUE(rank.hand_over->error().ok());
  EXPECT_EQ(rank.hand_over->placement(0), PlanOf(4));
}

TEST(HandOverTest, RejectsInvalidArgumentsWithoutEffect) {
  Rank rank;
  const Counts counts = Tokens(1);
  const auto step = [&](uint64_t iteration, size_t layers, uint64_t ready) {
    return rank.hand_over->Step(iteration, std::span(&counts, layers), ready).ToString();
  };
  EXPECT_THAT(step(0, 1, 0), HasSubstr("iteration=0: must be above iteration 0"));
  EXPECT_THAT(step(1, 0, 0), HasSubstr("layers=0: must be 1"));
  EXPECT_THAT(step(1, 1, 4), HasSubstr("plan 4 is not ready on all ranks"));
  EXPECT_EQ(step(1, 1, 0), "OK");
}

}  // namespace
}  // namespace rewire::moe
