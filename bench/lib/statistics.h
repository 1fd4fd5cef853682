// Statistics of samples that need no distribution. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

struct Interval {
  double low = 0;
  double high = 0;
  // The probability that the interval covers the true median: at least 0.95, or less where there
  // are so few samples (under 6) that even all of them cover it less often.
  double coverage = 0;
};

struct Summary {
  size_t count = 0;
  double min = 0;
  double median = 0;
  double mean = 0;
  double p50 = 0;  // nearest rank: a sample that was measured
  double p99 = 0;
  double max = 0;
  double spread = 0;  // interquartile range
  Interval median_interval;
};

// Nearest rank, 0 < fraction <= 1; the samples are in ascending order and not empty.
[[nodiscard]] double Percentile(const std::vector<double>& sorted, double fraction);
// By order statistics: the distribution of the samples does not matter.
[[nodiscard]] Interval MedianInterval(const std::vector<double>& sorted);
// Fails on no samples and on samples that are not finite.
[[nodiscard]] absl::StatusOr<Summary> Summarize(std::vector<double> samples);
// a[i] / b[i] of runs that were interleaved, so that drift of the machine cancels. Fails where the
// lengths differ or a b is not positive.
[[nodiscard]] absl::StatusOr<Summary> PairedRatio(const std::vector<double>& a,
                                                  const std::vector<double>& b);

}  // namespace rewire::bench
