#include "bench/lib/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace rewire::bench {

double Percentile(const std::vector<double>& sorted, double fraction) {
  // Rounding of fraction * size must not add a rank.
  const auto rank =
      static_cast<size_t>(std::ceil(fraction * static_cast<double>(sorted.size()) - 1e-9));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

Interval MedianInterval(const std::vector<double>& sorted) {
  // The number of samples under the median is binomial(n, 1/2). [x(k), x(n+1-k)] misses the median
  // with probability 2 P(B <= k-1). The loop finds the largest k with a probability of at most 5 %.
  const auto n = static_cast<double>(sorted.size());
  const double log_half_n = n * std::log(0.5);
  double below = 0;
  double missed = 2 * std::exp(log_half_n);
  size_t k = 1;
  for (size_t i = 0; 2 * (i + 1) <= sorted.size(); ++i) {
    const auto x = static_cast<double>(i);
    below +=
        std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) + log_half_n);
    if (2 * below > 0.05) break;
    missed = 2 * below;
    k = i + 1;
  }
  return {sorted[k - 1], sorted[sorted.size() - k], std::max(0.0, 1 - missed)};
}

absl::StatusOr<Summary> Summarize(std::vector<double> samples) {
  if (samples.empty()) return absl::InvalidArgumentError("no samples");
  for (const double sample : samples) {
    if (!std::isfinite(sample)) return absl::InvalidArgumentError("a sample is not finite");
  }
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  Summary summary;
  summary.count = n;
  summary.min = samples.front();
  summary.max = samples.back();
  summary.median = (samples[(n - 1) / 2] + samples[n / 2]) / 2;
  summary.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(n);
  summary.p50 = Percentile(samples, 0.5);
  summary.p99 = Percentile(samples, 0.99);
  summary.spread = Percentile(samples, 0.75) - Percentile(samples, 0.25);
  summary.median_interval = MedianInterval(samples);
  return summary;
}

absl::StatusOr<Summary> PairedRatio(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pairs need equal numbers: ", a.size(), " and ", b.size()));
  }
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(b[i] > 0)) return absl::InvalidArgumentError("a denominator is not positive");
    ratios.push_back(a[i] / b[i]);
  }
  return Summarize(std::move(ratios));
}

}  // namespace rewire::bench
