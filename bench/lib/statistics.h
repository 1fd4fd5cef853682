// Computes statistics of a benchmark's samples, without an assumption about their distribution.
// Pure functions: thread-safe.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

struct Interval {
  double low = 0;
  double high = 0;
  // The probability that the interval covers the true median: at least 0.95. With fewer than 6
  // samples the probability is lower, although the interval then spans all samples.
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

// Returns the percentile by nearest rank. 0 < fraction <= 1; `sorted` is in ascending order and not
// empty.
[[nodiscard]] double Percentile(const std::vector<double>& sorted, double fraction);
// Returns the confidence interval of the median, from order statistics (the sign test). `sorted` is
// in ascending order and not empty.
[[nodiscard]] Interval MedianInterval(const std::vector<double>& sorted);
// Fails if there is no sample or a sample is not finite.
[[nodiscard]] absl::StatusOr<Summary> Summarize(std::vector<double> samples);
// Summarises a[i] / b[i] of interleaved runs, so that drift of the machine cancels. Fails if the
// lengths differ or an element of b is not positive.
[[nodiscard]] absl::StatusOr<Summary> PairedRatio(const std::vector<double>& a,
                                                  const std::vector<double>& b);

}  // namespace rewire::bench
