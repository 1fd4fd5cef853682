#include "bench/lib/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace rewire::bench {
namespace {

std::vector<double> Ascending(size_t n) {
  std::vector<double> values(n);
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Statistics, SummarizesKnownValues) {
  const Summary summary = Summarize({5, 1, 4, 2, 3, 100}).value();
  EXPECT_EQ(summary.count, 6u);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.median, 3.5);
  EXPECT_EQ(summary.p50, 3);
  EXPECT_EQ(summary.p99, 100);
  EXPECT_EQ(summary.max, 100);
  EXPECT_DOUBLE_EQ(summary.mean, 115.0 / 6);
  EXPECT_EQ(summary.spread, 3);  // third quartile 5, first quartile 2
}

TEST(Statistics, PercentilesAreNearestRank) {
  const auto values = Ascending(100);
  EXPECT_EQ(Percentile(values, 0.5), 50);
  EXPECT_EQ(Percentile(values, 0.99), 99);
  EXPECT_EQ(Percentile(values, 1), 100);
  EXPECT_EQ(Percentile({7}, 0.01), 7);
  EXPECT_EQ(Percentile(Ascending(1000), 0.99), 990);
}

TEST(Statistics, MedianIntervalsMatchPublishedTables) {
  // The ranks come from published tables of the sign test's confidence interval of the median.
  struct Case {
    size_t n;
    double low, high, coverage;
  };
  for (const Case& c : {Case{6, 1, 6, 0.96875}, Case{10, 2, 9, 0.978515625},
                        Case{20, 6, 15, 0.958610535}, Case{25, 8, 18, 0.956714}}) {
    const Interval interval = MedianInterval(Ascending(c.n));
    EXPECT_EQ(interval.low, c.low) << c.n;
    EXPECT_EQ(interval.high, c.high) << c.n;
    EXPECT_NEAR(interval.coverage, c.coverage, 1e-6) << c.n;
  }
}

TEST(Statistics, FewSamplesReportLowerCoverage) {
  const Interval five = MedianInterval(Ascending(5));
  EXPECT_EQ(five.low, 1);
  EXPECT_EQ(five.high, 5);
  EXPECT_NEAR(five.coverage, 0.9375, 1e-9);
  EXPECT_NEAR(MedianInterval({3}).coverage, 0, 1e-9);
}

TEST(Statistics, MedianIntervalHasItsNominalCoverage) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> distribution(1.0);
  int covered = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> samples(31);
    for (double& sample : samples) sample = distribution(random);
    const Interval interval = Summarize(samples).value().median_interval;
    if (interval.low <= std::log(2.0) && std::log(2.0) <= interval.high) ++covered;
  }
  EXPECT_GT(covered, kTrials * 94 / 100);
  EXPECT_LT(covered, kTrials * 99 / 100);
}

TEST(Statistics, LargeCountsDoNotOverflow) {
  const Interval interval = MedianInterval(Ascending(100001));
  EXPECT_NEAR(interval.low, 50001 - 0.98 * std::sqrt(100001.0), 3);
  EXPECT_GE(interval.coverage, 0.95);
}

TEST(Statistics, PairedRatiosCancelDrift) {
  std::vector<double> a, b;
  for (int i = 1; i <= 40; ++i) {
    b.push_back(i);  // the machine becomes slower over time
    a.push_back(i * 1.01);
  }
  const Summary ratio = PairedRatio(a, b).value();
  EXPECT_NEAR(ratio.median, 1.01, 1e-12);
  EXPECT_NEAR(ratio.median_interval.high, 1.01, 1e-12);
}

TEST(Statistics, RejectsEmptyNonFiniteAndUnpairedSamples) {
  EXPECT_FALSE(Summarize({}).ok());
  EXPECT_FALSE(Summarize({1, std::nan("")}).ok());
  EXPECT_FALSE(Summarize({1, std::numeric_limits<double>::infinity()}).ok());
  EXPECT_FALSE(PairedRatio({1, 2}, {1}).ok());
  EXPECT_FALSE(PairedRatio({1}, {0}).ok());
  EXPECT_FALSE(PairedRatio({}, {}).ok());
}

}  // namespace
}  // namespace rewire::bench
