// A drawing of how much devices compute, before and after a plan, as SVG. For one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reconfig/moe/topology.h"

namespace rewire {

class LoadPlot {
 public:
  explicit LoadPlot(const moe::Topology& topology);

  // One micro-batch: the tokens of each device. Without any tokens it counts for nothing.
  void Add(const std::vector<uint64_t>& before, const std::vector<uint64_t>& after);
  // For each device the loads of all micro-batches over the mean of their own: a bar from the 10th
  // to the 90th percentile, a line at the median and one up to the most.
  [[nodiscard]] std::string Svg(const std::string& title) const;

 private:
  const moe::Topology topology_;
  // Of each device, a number for each micro-batch.
  std::vector<std::vector<float>> before_;
  std::vector<std::vector<float>> after_;
};

}  // namespace rewire
