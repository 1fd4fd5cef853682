#include "bench/swap/windows.h"

#include <algorithm>

#include "bench/swap/workload.h"

namespace rewire::bench {

namespace {

// Returns the quantile of unsorted values, by nearest rank.
float Quantile(std::vector<float>* values, double fraction) {
  if (values->empty()) return 0;
  const auto at = std::min(values->size() - 1,
                           static_cast<size_t>(fraction * static_cast<double>(values->size())));
  std::nth_element(values->begin(), values->begin() + static_cast<ptrdiff_t>(at), values->end());
  return (*values)[at];
}

class Windows {
 public:
  explicit Windows(const std::vector<Operation>& operations) : operations_(operations) {}

  void Ordinary(const std::vector<SwapPlace>& swaps, MemberReport* report) {
    std::vector<float> kinds[kKinds];
    std::vector<float> calls;
    for (const SwapPlace& swap : swaps) {
      for (uint64_t k = swap.quiet_from + kAside; k + kAside < swap.quiet_until; ++k) {
        kinds[k % kKinds].push_back(operations_.at(k).us);
        calls.push_back(operations_[k].cpu_us);
      }
    }
    for (uint32_t kind = 0; kind < kKinds; ++kind) p99_[kind] = Quantile(&kinds[kind], 0.99);
    // Kind 3 is the kind of the first operation after a foreground change.
    report->median_op_us = Quantile(&kinds[3], 0.5);
    report->op_spread_us = Quantile(&kinds[3], 0.75) - Quantile(&kinds[3], 0.25);
    report->call_cpu_us = {Quantile(&calls, 0.5), Quantile(&calls, 0.99)};
  }

  [[nodiscard]] SwapSeen See(const SwapPlace& swap) const {
    SwapSeen seen;
    seen.epoch = swap.epoch;
    seen.cut_cpu_us = operations_.at(swap.cut).cpu_us;
    const uint64_t half = swap.cut - swap.warm;
    const uint64_t before = swap.quiet_until - kAside - 2 * half;
    seen.warm_us = Stretch(swap.warm, swap.cut);
    seen.cut_us = Stretch(swap.cut, swap.cut + half);
    seen.before_us = Stretch(before, before + 2 * half);
    if (swap.built > swap.quiet_until) {
      seen.build_us_per_op = Stretch(swap.quiet_until, swap.built) /
                             static_cast<double>(swap.built - swap.quiet_until);
    }
    for (uint64_t k = swap.warm; k < swap.cut + half; ++k) {
      seen.longest_us = std::max(seen.longest_us, static_cast<double>(operations_[k].us));
    }
    seen.delayed = Delayed(swap.warm, 2 * half);
    seen.delayed_before = Delayed(before, 2 * half);
    return seen;
  }

 private:
  // Returns the loop's time from operation `begin` to the one before `end`, both issued.
  [[nodiscard]] double Stretch(uint64_t begin, uint64_t end) const {
    return operations_.at(end - 1).end_us - operations_.at(begin - 1).end_us;
  }
  // Bit i: operation begin + i is slower than the p99 of its kind.
  [[nodiscard]] uint64_t Delayed(uint64_t begin, uint64_t count) const {
    uint64_t bits = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t k = begin + i;
      if (operations_.at(k).us > p99_[k % kKinds]) bits |= uint64_t{1} << i;
    }
    return bits;
  }

  const std::vector<Operation>& operations_;
  float p99_[kKinds] = {};
};

}  // namespace

void DescribeOperations(const std::vector<Operation>& operations,
                        const std::vector<SwapPlace>& swaps, MemberReport* report) {
  Windows windows(operations);
  windows.Ordinary(swaps, report);
  for (const SwapPlace& swap : swaps) report->seen.push_back(windows.See(swap));
}

}  // namespace rewire::bench
