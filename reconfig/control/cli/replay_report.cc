// Sums and draws the loads of replayed micro-batches; see replay_report.h. Thread-compatible.
#include "reconfig/control/cli/replay_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace rewire::control {
namespace {

constexpr double kLeft = 48, kTop = 44, kHeight = 240, kBottom = 44;
constexpr char kBefore[] = "#b5651d", kAfter[] = "#2b6cb0";

void AddLoads(const std::vector<uint64_t>& loads, std::vector<std::vector<float>>* to) {
  const double mean =
      static_cast<double>(std::accumulate(loads.begin(), loads.end(), uint64_t{0})) /
      static_cast<double>(loads.size());
  if (mean == 0) return;
  for (size_t d = 0; d < loads.size(); ++d) {
    (*to)[d].push_back(static_cast<float>(static_cast<double>(loads[d]) / mean));
  }
}

double MostOf(const std::vector<std::vector<float>>& devices) {
  float most = 1;
  for (const std::vector<float>& d : devices) {
    for (const float load : d) most = std::max(most, load);
  }
  return most;
}

std::string Line(double x1, double y1, double x2, double y2, const char* style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2,
                         y2, style);
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         text);
}

// Converts a load into a y coordinate.
struct Scale {
  double most;
  [[nodiscard]] double Y(double load) const { return kTop + kHeight * (1 - load / most); }
};

// Draws a box from the 10th to the 90th percentile, a line at the median, and one up to the
// maximum.
std::string Bar(std::vector<float> loads, double x, double width, const Scale& scale,
                const char* colour) {
  if (loads.empty()) return "";
  std::sort(loads.begin(), loads.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(loads.size() - 1);
    return scale.Y(loads[static_cast<size_t>(std::lround(place))]);
  };
  const std::string stroke = absl::StrCat("stroke=\"", colour, "\"");
  return absl::StrFormat(
             "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" "
             "fill-opacity=\"0.5\"/>\n",
             x, at(0.9), width, std::max(at(0.1) - at(0.9), 0.5), colour) +
         Line(x, at(0.5), x + width, at(0.5), stroke.c_str()) +
         Line(x + width / 2, at(0.9), x + width / 2, at(1), stroke.c_str());
}

}  // namespace

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

LoadPlot::LoadPlot(const moe::Topology& topology)
    : topology_(topology), before_(topology.devices()), after_(topology.devices()) {}

void LoadPlot::Add(const std::vector<uint64_t>& before, const std::vector<uint64_t>& after) {
  AddLoads(before, &before_);
  AddLoads(after, &after_);
}

std::string LoadPlot::Svg(const std::string& title) const {
  const uint32_t devices = topology_.devices();
  const double step = std::clamp(900.0 / devices, 8.0, 48.0);
  const double width = std::max(step * devices, 240.0);
  // The axis has steps of a quarter, or of a whole number when quarters would be too fine.
  const double most = std::max(MostOf(before_), MostOf(after_));
  const double tick = most <= 2.5 ? 0.25 : std::ceil(most / 10);
  const Scale scale{std::ceil(most / tick) * tick};

  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kLeft + width + 16, kTop + kHeight + kBottom);
  const std::string escaped =
      absl::StrReplaceAll(title, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
  svg += Text(kLeft, 16, "start", escaped);
  svg += absl::StrFormat("<text x=\"%.1f\" y=\"34\" fill=\"%s\">before</text>\n", kLeft, kBefore);
  svg +=
      absl::StrFormat("<text x=\"%.1f\" y=\"34\" fill=\"%s\">after</text>\n", kLeft + 48, kAfter);
  for (double load = 0; load <= scale.most + tick / 2; load += tick) {
    const bool mean = std::abs(load - 1) < tick / 2;
    svg += Line(kLeft, scale.Y(load), kLeft + width, scale.Y(load),
                mean ? "stroke=\"black\" stroke-dasharray=\"4 3\"" : "stroke=\"#dddddd\"");
    svg += Text(kLeft - 6, scale.Y(load) + 4, "end", absl::StrFormat("%.4g", load));
  }
  const uint32_t labelled = std::max(1U, static_cast<uint32_t>(24 / step));
  for (uint32_t d = 0; d < devices; ++d) {
    const double x = kLeft + step * d;
    if (d > 0 && d % topology_.per_node == 0) {
      svg += Line(x, kTop, x, kTop + kHeight, "stroke=\"#888888\"");
    }
    svg += Bar(before_[d], x + step * 0.1, step * 0.35, scale, kBefore);
    svg += Bar(after_[d], x + step * 0.55, step * 0.35, scale, kAfter);
    if (d % labelled == 0) {
      svg += Text(x + step / 2, kTop + kHeight + 16, "middle", std::to_string(d));
    }
  }
  svg += Text(kLeft + width / 2, kTop + kHeight + 34, "middle",
              "device (bar: its tokens / mean tokens of a device in the micro-batch)");
  return svg + "</svg>\n";
}

}  // namespace rewire::control
