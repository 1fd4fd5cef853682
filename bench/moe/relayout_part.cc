#include "bench/moe/relayout_part.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/moe/csv_rows.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/plan/relayout.h"

namespace rewire::bench {
namespace {

using moe::Counts;
using moe::RelayoutOptions;

constexpr uint32_t kPerNode = 8;

// Returns this thread's processor time, without the work of other processes.
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

constexpr int kPlacedBy = 5;  // iterations, as in HandOver and LAER

// Counts with popularity by expert, by node and expert, and by device and expert. `stays` weighs
// the constant part of the popularity; its square is this part's share of the variance.
class SkewedCounts {
 public:
  SkewedCounts(const moe::Topology& topology, uint32_t experts, double stays,
               std::mt19937_64* random)
      : topology_(topology), experts_(experts), stays_(stays), random_(*random) {
    constexpr double kSigmas[] = {0, 0.3, 1};
    for (double& sigma : sigmas_) sigma = kSigmas[random_() % 3];
    Draw(&staying_);
  }

  Counts Next() {
    const double passes = std::sqrt(1 - stays_ * stays_);
    std::vector<double> popularity = staying_;
    if (passes > 0) {
      std::vector<double> passing;
      Draw(&passing);
      for (size_t i = 0; i < popularity.size(); ++i) {
        popularity[i] = stays_ * popularity[i] + passes * passing[i];
      }
    }
    Counts counts(topology_.devices(), experts_);
    for (uint32_t d = 0; d < topology_.devices(); ++d) {
      double* const share = &popularity[size_t{d} * experts_];
      for (uint32_t e = 0; e < experts_; ++e) share[e] = std::exp(share[e]);
      const double all = std::accumulate(share, share + experts_, 0.0);
      for (uint32_t e = 0; e < experts_; ++e) {
        counts.at(d, e) = static_cast<uint32_t>(16384 * share[e] / all);
      }
    }
    return counts;
  }

 private:
  // The result is indexed by [device * experts + expert].
  void Draw(std::vector<double>* popularity) {
    std::vector<double> expert(experts_), node(experts_);
    for (double& e : expert) e = sigmas_[0] * normal_(random_);
    popularity->clear();
    for (uint32_t d = 0; d < topology_.devices(); ++d) {
      if (d % topology_.per_node == 0) {
        for (double& n : node) n = sigmas_[1] * normal_(random_);
      }
      for (uint32_t e = 0; e < experts_; ++e) {
        popularity->push_back(expert[e] + node[e] + sigmas_[2] * normal_(random_));
      }
    }
  }

  const moe::Topology topology_;
  const uint32_t experts_;
  const double stays_;
  std::mt19937_64& random_;
  std::normal_distribution<double> normal_;
  double sigmas_[3] = {};
  std::vector<double> staying_;
};

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
  std::vector<Counts> iterations;
  RelayoutOptions options;
};
// Returns an input with `least_nodes` to 8 nodes.
Input AnyInput(uint32_t least_nodes, int iterations, double stays, std::mt19937_64* random) {
  Input input;
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>((*random)() % n); };
  input.options.topology.nodes = least_nodes + below(9 - least_nodes);
  input.options.topology.per_node = 1u << below(4);
  const uint32_t experts = 2u << below(6);
  const uint32_t devices = input.options.topology.devices();
  input.options.capacity = std::max(1 + below(8), (experts + devices - 1) / devices);
  SkewedCounts counts(input.options.topology, experts, stays, random);
  for (int i = 0; i < iterations; ++i) input.iterations.push_back(counts.Next());
  return input;
}

uint64_t CostOf(const moe::Placement& placement, std::span<const Counts> iterations,
                const RelayoutOptions& options) {
  uint64_t cost = 0;
  for (const Counts& counts : iterations) {
    moe::LiteRouting routing(options.topology, counts);
    cost += LayoutCost(routing.Route(placement), options.rates, options.objective);
  }
  return cost;
}

// The median processor time of a plan from `iterations` iterations of uniform tokens, 0 to 999.
absl::StatusOr<double> PlanSeconds(const RelayoutOptions& options, int iterations, int repeats,
                                   std::mt19937_64* random) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    std::vector<Counts> counts(iterations, Counts(options.topology.devices(), 32));
    for (Counts& c : counts) {
      for (uint32_t& t : c.tokens()) t = static_cast<uint32_t>((*random)() % 1000);
    }
    const double begin = ProcessorSeconds();
    REWIRE_RETURN_IF_ERROR(moe::PlanRelayout(counts, options).status());
    seconds.push_back(ProcessorSeconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
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
    REWIRE_ASSIGN_OR_RETURN(time.our_seconds, PlanSeconds(options, kPlacedBy, repeats, &random));
    REWIRE_ASSIGN_OR_RETURN(time.our_seconds_one_iteration,
                            PlanSeconds(options, 1, repeats, &random));
    times.push_back(time);
  }
  return times;
}

absl::StatusOr<std::vector<double>> CompareRelayoutCosts(int inputs, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> ratios;
  for (int i = 0; i < inputs; ++i) {
    const Input input = AnyInput(1, 1, 1, &random);
    REWIRE_ASSIGN_OR_RETURN(const double ratio, CostRatio(input.iterations[0], input.options));
    ratios.push_back(ratio);
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios;
}

absl::StatusOr<OutOfSample> CompareRelayoutsOutOfSample(int inputs, uint64_t seed) {
  constexpr double kStays = 0.8;  // the square is the share of the variance
  std::mt19937_64 random(seed);
  OutOfSample out;
  int no_dearer = 0;
  for (int i = 0; i < inputs; ++i) {
    const Input input = AnyInput(1, kPlacedBy + 1, kStays, &random);
    const std::span<const Counts> all = input.iterations;
    const std::span<const Counts> five = all.first(kPlacedBy), next = all.last(1);
    Counts sum = five[0];
    for (const Counts& c : five.subspan(1)) sum.Add(c);
    REWIRE_ASSIGN_OR_RETURN(const moe::Relayout laer, moe::PlanAsLaer(sum, input.options));
    REWIRE_ASSIGN_OR_RETURN(const moe::Relayout ours, moe::PlanRelayout(five, input.options));
    const auto ratio = [&](std::span<const Counts> iterations) {
      return static_cast<double>(CostOf(ours.placement, iterations, input.options)) /
             static_cast<double>(CostOf(laer.placement, iterations, input.options));
    };
    out.placed_by.push_back(ratio(five));
    out.next.push_back(ratio(next));
    no_dearer += out.next.back() <= 1 ? 1 : 0;
  }
  std::sort(out.placed_by.begin(), out.placed_by.end());
  std::sort(out.next.begin(), out.next.end());
  out.no_dearer = static_cast<double>(no_dearer) / inputs;
  return out;
}

absl::StatusOr<ObjectivesCompared> CompareObjectives(int inputs, uint64_t seed) {
  std::mt19937_64 random(seed);
  int no_busier = 0;
  double computed = 0;
  for (int i = 0; i < inputs;) {
    Input input = AnyInput(2, 1, 1, &random);
    moe::LiteRouting routing(input.options.topology, input.iterations[0]);
    Busiest sums, links;
    for (Busiest* busiest : {&sums, &links}) {
      input.options.objective =
          busiest == &links ? moe::Objective::kBusiestLink : moe::Objective::kSum;
      REWIRE_ASSIGN_OR_RETURN(const moe::Relayout plan,
                              moe::PlanRelayout(input.iterations, input.options));
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
