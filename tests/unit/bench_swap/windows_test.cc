#include "bench/swap/windows.h"

#include <gtest/gtest.h>

#include "bench/swap/workload.h"

namespace rewire::bench {
namespace {

// One swap: quiet from 100 to 2500, built at 2600, warm index 2700, cut at 2708.
const SwapPlace kPlace{2, 100, 2500, 2600, 2700, 2708};

class WindowsTest : public testing::Test {
 protected:
  WindowsTest() : operations_(2800) {
    for (size_t k = 0; k < operations_.size(); ++k) operations_[k] = {10, 1, 0};
  }
  MemberReport Describe() {
    double end = 0;
    for (Operation& operation : operations_) operation.end_us = end += operation.us + 5;
    MemberReport report;
    DescribeOperations(operations_, {kPlace}, &report);
    return report;
  }
  std::vector<Operation> operations_;
};

TEST_F(WindowsTest, AnEvenRunHasNoStallAndNothingDelayed) {
  const SwapSeen seen = Describe().seen.at(0);
  EXPECT_EQ(seen.epoch, 2u);
  EXPECT_DOUBLE_EQ(seen.warm_us, 8 * 15);
  EXPECT_DOUBLE_EQ(seen.warm_us + seen.cut_us, seen.before_us);
  EXPECT_DOUBLE_EQ(seen.build_us_per_op, 15);
  EXPECT_EQ(seen.delayed, 0u);
  EXPECT_EQ(seen.delayed_before, 0u);
}

TEST_F(WindowsTest, ASlowOperationIsSeenWhereItIs) {
  operations_[2708].us = 30;
  operations_[2715].us = 11;
  const SwapSeen seen = Describe().seen.at(0);
  EXPECT_EQ(seen.delayed, uint64_t{1} << 8 | uint64_t{1} << 15);
  EXPECT_DOUBLE_EQ(seen.warm_us + seen.cut_us - seen.before_us, 21);
  EXPECT_DOUBLE_EQ(seen.longest_us, 30);
}

TEST_F(WindowsTest, WhatDisturbsTheMachineAnyhowIsNotTheSwaps) {
  // Slows every ninth operation, which covers every kind: more than one of a hundred.
  for (size_t k = 0; k < operations_.size(); k += 9) operations_[k].us = 30;
  operations_[2709].us = 31;
  EXPECT_EQ(Describe().seen.at(0).delayed, uint64_t{1} << 9);
}

TEST_F(WindowsTest, BothWindowsAreMeasuredAlike) {
  operations_[2500 - kAside - 1].us = 40;  // the last operation of the undisturbed window
  operations_[2500 - kAside].us = 40;      // the leader's query may have disturbed this operation
  const SwapSeen seen = Describe().seen.at(0);
  EXPECT_EQ(seen.delayed_before, uint64_t{1} << 15);
  EXPECT_DOUBLE_EQ(seen.before_us, 16 * 15 + 30);
}

TEST_F(WindowsTest, KindsAreComparedWithTheirOwn) {
  for (size_t k = 4; k < operations_.size(); k += kKinds) operations_[k].us = 50;
  MemberReport report = Describe();
  EXPECT_EQ(report.seen.at(0).delayed, 0u);
  EXPECT_DOUBLE_EQ(report.median_op_us, 10);
}

}  // namespace
}  // namespace rewire::bench
