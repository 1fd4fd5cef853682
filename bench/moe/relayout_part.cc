#include "bench/moe/relayout_part.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/moe/csv_rows.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/relayout.h"

namespace rewire::bench {
namespace {

using moe::Counts;
using moe::RelayoutOptions;

constexpr uint32_t kPerNode = 8;

// Of this thread: what other processes do on a shared machine is not the planner's time.
double ProcessorSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

absl::StatusOr<double> CostRatio(const Counts& counts, const RelayoutOptions& options) {
  REWIRE_ASSIGN_OR_RETURN(const moe::Relayout laer, moe::PlanAsLaer(counts, options));
  REWIRE_ASSIGN_OR_RETURN(const moe::Relayout ours,
                          moe::PlanRelayout(std::span(&counts, 1), options));
  return static_cast<double>(ours.cost_ps) / static_cast<double>(laer.cost_ps);
}

// Popularity by expert, by node and expert, and by device and expert.
Counts SkewedCounts(const moe::Topology& topology, uint32_t experts, std::mt19937_64* random) {
  constexpr double kSigmas[] = {0, 0.3, 1};
  const double of_expert = kSigmas[(*random)() % 3], of_node = kSigmas[(*random)() % 3],
               of_device = kSigmas[(*random)() % 3];
  std::normal_distribution<double> normal;
  std::vector<double> expert(experts), node(experts), share(experts);
  for (double& e : expert) e = of_expert * normal(*random);
  Counts counts(topology.devices(), experts);
  for (uint32_t d = 0; d < topology.devices(); ++d) {
    if (d % topology.per_node == 0) {
      for (double& n : node) n = of_node * normal(*random);
    }
    for (uint32_t e = 0; e < experts; ++e) {
      share[e] = std::exp(expert[e] + node[e] + of_device * normal(*random));
    }
    const double all = std::accumulate(share.begin(), share.end(), 0.0);
    for (uint32_t e = 0; e < experts; ++e) {
      counts.at(d, e) = static_cast<uint32_t>(16384 * share[e] / all);
    }
  }
  return counts;
}

struct Busiest {
  uint64_t link = 0;
  uint64_t computed = 0;
};
Busiest BusiestOf(const moe::RoutedTokens& routed) {
  const auto most = [](const std::vector<uint64_t>& v) {
    return *std::max_element(v.begin(), v.end());
  };
  return {std::max(most(routed.leaving), most(routed.arriving)), most(routed.computed)};
}

struct Input {
  Counts counts;
  RelayoutOptions options;
};
// Of so many nodes or more, up to 8.
Input AnyInput(uint32_t least_nodes, std::mt19937_64* random) {
  Input input;
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>((*random)() % n); };
  input.options.topology.nodes = least_nodes + below(9 - least_nodes);
  input.options.topology.per_node = 1u << below(4);
  const uint32_t experts = 2u << below(6);
  const uint32_t devices = input.options.topology.devices();
  input.options.capacity = std::max(1 + below(8), (experts + devices - 1) / devices);
  input.counts = SkewedCounts(input.options.topology, experts, random);
  return input;
}

}  // namespace

absl::StatusOr<std::vector<RelayoutTime>> TimeRelayouts(const std::string& planner_seconds_csv,
                                                        int repeats) {
  REWIRE_ASSIGN_OR_RETURN(auto rows, ReadCsvRows(planner_seconds_csv));
  std::vector<RelayoutTime> times;
  std::mt19937_64 random(1);
  for (auto& row : rows) {
    RelayoutTime time;
    if (!absl::SimpleAtoi(row["n_device"], &time.devices) ||
        !absl::SimpleAtoi(row["C_e"], &time.capacity) ||
        !absl::SimpleAtod(row["time"], &time.laer_seconds)) {
      return absl::InvalidArgumentError(
          absl::StrCat(planner_seconds_csv, ": a row is not numbers"));
    }
    RelayoutOptions options;
    options.topology = {time.devices / kPerNode, kPerNode};
    options.capacity = time.capacity;
    std::vector<double> seconds;
    for (int i = 0; i < repeats; ++i) {
      Counts counts(time.devices, 32);
      for (uint32_t& t : counts.tokens()) t = static_cast<uint32_t>(random() % 1000);
      const double begin = ProcessorSeconds();
      REWIRE_RETURN_IF_ERROR(moe::PlanRelayout(std::span(&counts, 1), options).status());
      seconds.push_back(ProcessorSeconds() - begin);
      REWIRE_ASSIGN_OR_RETURN(const double ratio, CostRatio(counts, options));
      time.cost_ratio += ratio / repeats;
    }
    std::sort(seconds.begin(), seconds.end());
    time.our_seconds = seconds[seconds.size() / 2];
    times.push_back(time);
  }
  return times;
}

absl::StatusOr<std::vector<double>> CompareRelayoutCosts(int inputs, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> ratios;
  for (int i = 0; i < inputs; ++i) {
    const Input input = AnyInput(1, &random);
    REWIRE_ASSIGN_OR_RETURN(const double ratio, CostRatio(input.counts, input.options));
    ratios.push_back(ratio);
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios;
}

absl::StatusOr<ObjectivesCompared> CompareObjectives(int inputs, uint64_t seed) {
  std::mt19937_64 random(seed);
  int no_busier = 0;
  double computed = 0;
  for (int i = 0; i < inputs;) {
    Input input = AnyInput(2, &random);
    moe::LiteRouting routing(input.options.topology, input.counts);
    Busiest sums, links;
    for (Busiest* busiest : {&sums, &links}) {
      input.options.objective =
          busiest == &links ? moe::Objective::kBusiestLink : moe::Objective::kSum;
      REWIRE_ASSIGN_OR_RETURN(const moe::Relayout plan,
                              moe::PlanRelayout(std::span(&input.counts, 1), input.options));
      *busiest = BusiestOf(routing.Route(plan.placement));
    }
    if (sums.link == 0 && links.link == 0) continue;
    ++i;
    no_busier += links.link <= sums.link ? 1 : 0;
    computed += static_cast<double>(links.computed) / static_cast<double>(sums.computed);
  }
  return ObjectivesCompared{static_cast<double>(no_busier) / inputs, computed / inputs};
}

}  // namespace rewire::bench
