#include "reconfig/base/counters.h"

#include <gtest/gtest.h>

#include <map>
#include <string_view>
#include <thread>

namespace rewire {
namespace {

TEST(CountersTest, OneObjectsPartIsInTheTotal) {
  const uint64_t before = ValueOf(Counter::kNetLinksMade);
  Counted one{Counter::kNetLinksMade};
  Counted other{Counter::kNetLinksMade};
  EXPECT_EQ(++one, 1u);
  EXPECT_EQ(one += 5, 6u);
  ++other;
  EXPECT_EQ(one.load(), 6u);
  EXPECT_EQ(other.load(), 1u);
  EXPECT_EQ(ValueOf(Counter::kNetLinksMade), before + 7);
}

TEST(CountersTest, GaugesFallAndPeaksDoNot) {
  Count(Counter::kBudgetInFlight, 10);
  Count(Counter::kBudgetInFlight, -uint64_t{10});
  EXPECT_EQ(ValueOf(Counter::kBudgetInFlight), 0u);
  RaiseCounter(Counter::kBudgetPeak, 7);
  RaiseCounter(Counter::kBudgetPeak, 3);
  EXPECT_EQ(ValueOf(Counter::kBudgetPeak), 7u);
}

TEST(CountersTest, AListHasTheValuesOtherThanZero) {
  SetCounter(Counter::kMemberDropped, 4);
  const std::vector<CounterValue> values = CounterValues();
  EXPECT_EQ(ValueIn(values, Counter::kMemberDropped), 4u);
  EXPECT_EQ(ValueIn({}, Counter::kMemberDropped), 0u);
  for (const CounterValue& v : values) EXPECT_NE(v.value, 0u);
}

TEST(CountersTest, NoThreadLosesACount) {
  const uint64_t before = ValueOf(Counter::kShimSwaps);
  const auto count = [] {
    for (int i = 0; i < 10'000; ++i) Count(Counter::kShimSwaps);
  };
  std::thread other(count);
  count();
  other.join();
  EXPECT_EQ(ValueOf(Counter::kShimSwaps), before + 20'000);
}

// Rows of one metric share its kind and help text, as Prometheus requires, and differ in the label.
TEST(CountersTest, RowsOfOneMetricDifferInTheLabelAlone) {
  std::map<std::string_view, const CounterInfo*> known;
  for (const CounterInfo& info : CounterTable()) {
    const auto [at, first] = known.emplace(info.metric, &info);
    if (first) continue;
    EXPECT_EQ(info.kind, at->second->kind) << info.metric;
    EXPECT_STREQ(info.help, at->second->help);
    EXPECT_STRNE(info.label, at->second->label);
  }
}

}  // namespace
}  // namespace rewire
