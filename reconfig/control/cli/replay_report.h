// The output of `rewire moe replay`: the balance of each layer's micro-batches before and after the
// plan, as numbers, and the load of each device as an SVG plot. Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reconfig/moe/plan/placement.h"
#include "reconfig/moe/plan/replay.h"

namespace rewire::control {

class ReplayReport {
 public:
  void Add(uint32_t layer, const moe::Replayed& replayed);

  // Returns a row for each layer and a row for all layers. Values are means over micro-batches: the
  // busiest device's tokens minus the mean, and divided by the mean; copies of experts' weights;
  // moved tokens.
  [[nodiscard]] nlohmann::ordered_json ToJson() const;
  // Returns the same numbers, except the moved tokens, as a table.
  [[nodiscard]] std::string Text() const;

 private:
  struct Evenness {
    double straggler = 0;      // tokens
    double max_over_mean = 0;  // 1 for a micro-batch without tokens
  };
  // Sums over micro-batches.
  struct Sums {
    uint64_t micro_batches = 0;
    Evenness before, after;
    double copies = 0;
    double moved_tokens = 0;
  };
  static void AddTo(Evenness* sum, const std::vector<uint64_t>& loads);
  static nlohmann::ordered_json ToJson(const Sums& sums);

  std::map<uint32_t, Sums> layers_;
  Sums all_;
};

class LoadPlot {
 public:
  explicit LoadPlot(const moe::Topology& topology);

  // Adds one micro-batch: the tokens of each device. Ignores a list without any tokens.
  void Add(const std::vector<uint64_t>& before, const std::vector<uint64_t>& after);
  // Draws, for each device, its loads relative to their micro-batch's mean: a bar from the 10th to
  // the 90th percentile, a line at the median, and a line up to the maximum.
  [[nodiscard]] std::string Svg(const std::string& title) const;

 private:
  const moe::Topology topology_;
  // For each device, one number per micro-batch.
  std::vector<std::vector<float>> before_;
  std::vector<std::vector<float>> after_;
};

}  // namespace rewire::control
