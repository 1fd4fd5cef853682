// Draws the load of each device, before and after a plan, as SVG. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reconfig/moe/plan/placement.h"

namespace rewire::control {

class LoadPlot {
 public:
  explicit LoadPlot(const moe::Topology& topology);

  // Adds one micro-batch: the tokens of each device. Ignores a list without any tokens.
  void Add(const std::vector<uint64_t>& before, const std::vector<uint64_t>& after);
  // Draws, for each device, its loads relative to their micro-batch's mean: a bar from the 10th to
  // the 90th percentile, a line at the median, and one up to the maximum.
  [[nodiscard]] std::string Svg(const std::string& title) const;

 private:
  const moe::Topology topology_;
  // For each device, one number per micro-batch.
  std::vector<std::vector<float>> before_;
  std::vector<std::vector<float>> after_;
};

}  // namespace rewire::control
