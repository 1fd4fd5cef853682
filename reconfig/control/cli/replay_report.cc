#include "reconfig/control/cli/replay_report.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace rewire::control {

using nlohmann::ordered_json;

void ReplayReport::Add(uint32_t layer, const moe::Replayed& replayed) {
  for (Sums* sums : {&layers_[layer], &all_}) {
    ++sums->micro_batches;
    AddTo(&sums->before, replayed.before);
    AddTo(&sums->after, replayed.after);
    sums->copies += replayed.copied.experts;
    sums->moved_tokens += static_cast<double>(replayed.copied.tokens);
  }
}

void ReplayReport::AddTo(Evenness* sum, const std::vector<uint64_t>& loads) {
  const auto most = static_cast<double>(*std::max_element(loads.begin(), loads.end()));
  const double mean =
      static_cast<double>(std::accumulate(loads.begin(), loads.end(), uint64_t{0})) /
      static_cast<double>(loads.size());
  sum->straggler += most - mean;
  sum->max_over_mean += most > 0 ? most / mean : 1;
}

ordered_json ReplayReport::ToJson(const Sums& sums) {
  const auto mean = [&](double sum) {
    return sums.micro_batches == 0 ? 0 : sum / static_cast<double>(sums.micro_batches);
  };
  return {{"micro_batches", sums.micro_batches},
          {"straggler_before", mean(sums.before.straggler)},
          {"straggler_after", mean(sums.after.straggler)},
          {"max_over_mean_before", mean(sums.before.max_over_mean)},
          {"max_over_mean_after", mean(sums.after.max_over_mean)},
          {"copies", mean(sums.copies)},
          {"moved_tokens", mean(sums.moved_tokens)}};
}

ordered_json ReplayReport::ToJson() const {
  ordered_json layers = ordered_json::array();
  for (const auto& [layer, sums] : layers_) {
    ordered_json row = {{"layer", layer}};
    row.update(ToJson(sums));
    layers.push_back(row);
  }
  return {{"layers", layers}, {"all", ToJson(all_)}};
}

std::string ReplayReport::Text() const {
  std::string text =
      " layer  micro-batches  straggler: before     after  max/mean: before   after  copies\n";
  const auto add = [&](const std::string& layer, const Sums& sums) {
    const ordered_json row = ToJson(sums);
    char line[128];
    snprintf(line, sizeof line, "%6s %14llu %18.0f %9.0f %17.3f %7.3f %7.1f\n", layer.c_str(),
             static_cast<unsigned long long>(sums.micro_batches),
             row["straggler_before"].get<double>(), row["straggler_after"].get<double>(),
             row["max_over_mean_before"].get<double>(), row["max_over_mean_after"].get<double>(),
             row["copies"].get<double>());
    text += line;
  };
  for (const auto& [layer, sums] : layers_) add(std::to_string(layer), sums);
  add("all", all_);
  return text;
}

}  // namespace rewire::control
