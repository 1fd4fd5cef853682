#include "reconfig/moe/exec/round_times.h"

#include <gtest/gtest.h>

namespace rewire::moe {
namespace {

TEST(LatenessTest, LateRoundsInARowHalveTheBudgetDownToZero) {
  Lateness lateness(5, 3);
  for (const bool late : {true, true, false, true, true}) EXPECT_FALSE(lateness.Count(late));
  EXPECT_EQ(lateness.copies(), 5u);
  EXPECT_TRUE(lateness.Count(true));
  EXPECT_EQ(lateness.copies(), 2u);
  for (int i = 0; i < 6; ++i) (void)lateness.Count(true);
  EXPECT_EQ(lateness.copies(), 0u);
  EXPECT_EQ(lateness.total(), 11u);
}

TEST(LatenessTest, KeepsTheFirstReason) {
  Lateness late(2, 1), failed(2, 1);
  EXPECT_TRUE(late.Count(true));
  EXPECT_EQ(late.off(), Off::kNo);
  EXPECT_TRUE(late.Count(true));
  EXPECT_EQ(late.off(), Off::kLate);
  failed.TurnOff();
  EXPECT_TRUE(failed.Count(true));
  EXPECT_EQ(failed.off(), Off::kCopies);
}

// Events that have all been reached, `elapsed_ms` apart.
float elapsed_ms = 1;

CudaDriver ReachedEvents() {
  CudaDriver cuda{};
  cuda.EventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(1);
    return CUDA_SUCCESS;
  };
  cuda.EventDestroy = [](CUevent) { return CUDA_SUCCESS; };
  cuda.EventQuery = [](CUevent) { return CUDA_SUCCESS; };
  cuda.EventElapsedTime = [](float* ms, CUevent, CUevent) {
    *ms = elapsed_ms;
    return CUDA_SUCCESS;
  };
  return cuda;
}

// Otherwise one slow first copy would end the balancing: a plan without copies measures none.
TEST(RoundTimesTest, RoundsWithoutCopiesForgetASlowCopy) {
  const CudaDriver cuda = ReachedEvents();
  auto times = RoundTimes::Create(cuda, 2, 10);
  ASSERT_TRUE(times.ok()) << times.status();
  elapsed_ms = 4;
  (*times)->Measure(false, 1000, 1 << 20);
  const Speeds slow = (*times)->speeds();
  EXPECT_GT(slow.kib, 0u);
  EXPECT_GT(slow.start, 0u);
  (*times)->Measure(false, 1000, 0);
  EXPECT_GT((*times)->speeds().kib, slow.kib / 2);
  for (int round = 0; round < 600; ++round) (*times)->Measure(round % 2 == 1, 1000, 0);
  EXPECT_LT((*times)->speeds().kib, slow.kib / 50);
  EXPECT_LT((*times)->speeds().start, slow.start / 50);
  EXPECT_GT((*times)->speeds().kib, 0u);
  EXPECT_GT((*times)->speeds().row, slow.row / 2);
}

}  // namespace
}  // namespace rewire::moe
