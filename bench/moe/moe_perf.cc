// `./dev bench moe`: compares Rewire's balancing with other systems' on a synthetic trace. Measures
// the evenness of micro-batches, the time of a plan, and whether every rank derives the same plan.
// Compares re-layouts with LAER-MoE's: their time, their cost, the evenness with balancing on top,
// and the time of an iteration in a model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "bench/lib/command_line.h"
#include "bench/lib/report.h"
#include "bench/moe/composed_part.h"
#include "bench/moe/iteration_model.h"
#include "bench/moe/planning.h"
#include "bench/moe/quality.h"
#include "bench/moe/relayout_part.h"
#include "bench/moe/shifting_part.h"

namespace rewire::bench {
namespace {

struct Options {
  int64_t seeds = 32;
  int64_t batches = 16;
  int64_t plans = 20'000;
  int64_t inputs = 1'000'000;
  int64_t layouts = 10'000;
  bool json = false;
};

constexpr int kRanks = 2;
constexpr double kMostError = 0.15;
const std::string kData = REWIRE_MOE_DATA;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "moe_perf: %s\n", std::string(status.message()).c_str());
  exit(1);
}

double Median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return Percentile(samples, 0.5);
}

void Quality(const Options& options, uint32_t devices, Report* report) {
  std::vector<std::vector<double>> straggler(kWayNames.size());
  std::vector<std::vector<double>> token_cut(kWayNames.size());
  std::vector<std::vector<double>> gemm_cut(kWayNames.size());
  std::vector<std::vector<double>> copies(kWayNames.size());
  std::vector<bool> worse(kWayNames.size());
  for (int64_t seed = 1; seed <= options.seeds; ++seed) {
    const auto ways = MeasureSeed(devices, static_cast<uint64_t>(seed),
                                  static_cast<int>(options.batches), GemmTime{});
    const Evenness& none = ways[static_cast<size_t>(Way::kNone)];
    for (size_t w = 0; w < ways.size(); ++w) {
      straggler[w].push_back(ways[w].token_straggler);
      token_cut[w].push_back(1 - ways[w].token_straggler / none.token_straggler);
      gemm_cut[w].push_back(1 - ways[w].gemm_straggler_us / none.gemm_straggler_us);
      copies[w].push_back(ways[w].copies);
      worse[w] = worse[w] || ways[w].worse;
    }
  }
  fprintf(report->text(), "# %u devices: %-19s %9s %8s %7s %7s %8s %7s\n", devices, "", "straggler",
          "cut", "p10", "p90", "GEMM cut", "copies");
  for (size_t w = 0; w < kWayNames.size(); ++w) {
    std::vector<double> sorted = token_cut[w];
    std::sort(sorted.begin(), sorted.end());
    fprintf(report->text(), "  %-31s %9.0f %8.3f %7.3f %7.3f %8.3f %7.1f%s\n",
            std::string(kWayNames[w]).c_str(), Median(straggler[w]), Median(token_cut[w]),
            Percentile(sorted, 0.1), Percentile(sorted, 0.9), Median(gemm_cut[w]),
            Median(copies[w]), worse[w] ? "  once worse than none" : "");
  }
  const std::string suffix = "_ep" + std::to_string(devices);
  const auto ours = static_cast<size_t>(Way::kOurs);
  report->Set("base_straggler" + suffix, Median(straggler[static_cast<size_t>(Way::kNone)]));
  report->Set("token_straggler_cut" + suffix, Median(token_cut[ours]));
  report->Set("gemm_straggler_cut" + suffix, Median(gemm_cut[ours]));
  report->Set("never_worse" + suffix, !worse[ours]);
  report->Set("copies" + suffix, Median(copies[ours]));
  for (const auto& [way, name] :
       {std::pair(Way::kSplit, "gate_1_3"), std::pair(Way::kSplitUngated, "gate_1_0")}) {
    const auto w = static_cast<size_t>(way);
    const std::string key = std::string("_llep_") + name + suffix;
    report->Set("token_straggler_cut" + key, Median(token_cut[w]));
    report->Set("gemm_straggler_cut" + key, Median(gemm_cut[w]));
    report->Set("copies" + key, Median(copies[w]));
  }
  for (size_t w = 0; w < kWayNames.size(); ++w) {
    const std::string name = std::string(kWayNames[w]) + suffix;
    Check(report->AddSamples("token straggler, " + name, "tokens", straggler[w]));
    Check(report->AddSamples("token cut, " + name, "", token_cut[w]));
    Check(report->AddSamples("GEMM cut, " + name, "", gemm_cut[w]));
    Check(report->AddSamples("copies, " + name, "", copies[w]));
  }
}

// Reports shifting loads, with FEPLB's default number of dynamic experts.
void ShiftingLoads(const Options& options, Report* report) {
  fprintf(report->text(),
          "# shifting loads, max/mean:  sigma    none  history  counts   worst  copies\n");
  for (const uint32_t devices : {2U, 4U, 8U}) {
    for (const double sigma : {0.5, 1.0}) {
      std::vector<double> none, history, counts, copies;
      double worst = 0;
      for (int64_t seed = 1; seed <= options.seeds; ++seed) {
        const Shifting s = MeasureShifting(devices, sigma, static_cast<uint64_t>(seed),
                                           static_cast<int>(options.batches));
        none.push_back(s.none);
        history.push_back(s.by_history);
        counts.push_back(s.by_counts);
        copies.push_back(s.copies);
        worst = std::max(worst, s.worst_by_counts);
      }
      fprintf(report->text(), "  %u devices %22.1f %7.3f %8.3f %7.4f %7.4f %7.1f\n", devices, sigma,
              Median(none), Median(history), Median(counts), worst, Median(copies));
      const std::string suffix = "_ep" + std::to_string(devices) + (sigma < 1 ? "" : "_sigma_1");
      report->Set("shifting_max_over_mean_unbalanced" + suffix, Median(none));
      report->Set("shifting_max_over_mean_by_history" + suffix, Median(history));
      report->Set("shifting_max_over_mean" + suffix, Median(counts));
      report->Set("shifting_max_over_mean_worst" + suffix, worst);
      report->Set("shifting_copies" + suffix, Median(copies));
    }
  }
}

// Reports re-layouts. LAER's planner times are published values from its authors' machine; Rewire's
// times are from this machine.
void Relayouts(const Options& options, Report* report) {
  const auto times = TimeRelayouts(kData + "/planner_seconds.csv", 9);
  Check(times.status());
  fprintf(report->text(),
          "# re-layout, 32 experts: devices, capacity, LAER s, ours from five iterations s, ratio, "
          "from one s, ratio\n");
  std::map<uint32_t, double> five, one;  // the minimum over capacities
  const auto least = [](std::map<uint32_t, double>* of, uint32_t devices, double ratio) {
    const auto [known, fresh] = of->emplace(devices, ratio);
    if (!fresh) known->second = std::min(known->second, ratio);
  };
  for (const RelayoutTime& t : *times) {
    const double ratio = t.laer_seconds / t.our_seconds;
    const double ratio_one = t.laer_seconds / t.our_seconds_one_iteration;
    fprintf(report->text(), "  %5u %3u %9.5f %9.6f %6.1f %9.6f %6.1f\n", t.devices, t.capacity,
            t.laer_seconds, t.our_seconds, ratio, t.our_seconds_one_iteration, ratio_one);
    least(&five, t.devices, ratio);
    least(&one, t.devices, ratio_one);
  }
  for (const auto& [devices, ratio] : five) {
    const std::string n = "_n" + std::to_string(devices);
    report->Set("relayout_speedup_vs_laer_five_iterations" + n, ratio);
    report->Set("relayout_speedup_vs_laer" + n, one[devices]);
  }

  const auto costs = CompareRelayoutCosts(static_cast<int>(options.layouts), 1);
  Check(costs.status());
  fprintf(report->text(),
          "# re-layout cost beside LAER's, %zu inputs of one iteration, in sample: "
          "median %.4f, worst %.4f\n",
          costs->size(), Percentile(*costs, 0.5), costs->back());
  report->Set("relayout_cost_ratio", costs->back());
  report->Set("relayout_cost_ratio_median", Percentile(*costs, 0.5));

  const auto out =
      CompareRelayoutsOutOfSample(static_cast<int>(std::max<int64_t>(options.layouts / 4, 1)), 1);
  Check(out.status());
  for (const auto& [ratios, name] :
       {std::pair(&out->placed_by, "five_in_sample"), std::pair(&out->next, "out_of_sample")}) {
    fprintf(report->text(),
            "# re-layout cost beside LAER's, placed by five, %s, %zu inputs: "
            "p10 %.4f, median %.4f, p90 %.4f, worst %.4f\n",
            name, ratios->size(), Percentile(*ratios, 0.1), Percentile(*ratios, 0.5),
            Percentile(*ratios, 0.9), ratios->back());
    const std::string key = std::string("relayout_cost_ratio_") + name;
    report->Set(key + "_median", Percentile(*ratios, 0.5));
    report->Set(key + "_p90", Percentile(*ratios, 0.9));
    report->Set(key, ratios->back());
  }
  report->Set("relayout_no_dearer_out_of_sample", out->no_dearer);

  const auto compared = CompareObjectives(static_cast<int>(options.layouts), 1);
  Check(compared.status());
  fprintf(report->text(),
          "# placed for the busiest link: no busier than the sum's in %.3f of inputs, and devices "
          "compute %.3f\n",
          compared->no_busier, compared->computed);
  report->Set("relayout_link_no_busier", compared->no_busier);
}

// Reports the composition; the headline is the worse of the set-ups.
void Compositions(const Options& options, Report* report) {
  constexpr int kIterations = 4;
  double worst = 0, worst_laer = 0;
  fprintf(report->text(),
          "# composed, max/mean:   fixed  FEPLB   LAER Rewire     p10     p90"
          "  copies of FEPLB's  bytes of FEPLB's\n");
  for (const ComposedSetup& setup : {E8K2(), E16K4()}) {
    std::vector<double> fixed, greedy, laer, ours, copies, bytes;
    for (int64_t seed = 1; seed <= options.seeds; ++seed) {
      const auto c = MeasureComposed(setup, static_cast<uint64_t>(seed), kIterations);
      Check(c.status());
      fixed.push_back(c->fixed);
      greedy.push_back(c->greedy);
      laer.push_back(c->laer);
      ours.push_back(c->ours);
      copies.push_back(c->our_copies / c->greedy_copies);
      bytes.push_back(c->our_bytes / c->greedy_bytes);
    }
    const std::string name(setup.name);
    std::vector<double> sorted = ours;
    std::sort(sorted.begin(), sorted.end());
    fprintf(report->text(), "  %-20s %6.3f %6.3f %6.3f %6.3f %7.3f %7.3f %18.2f %17.2f\n",
            name.c_str(), Median(fixed), Median(greedy), Median(laer), Median(ours),
            Percentile(sorted, 0.1), Percentile(sorted, 0.9), Median(copies), Median(bytes));
    worst = std::max(worst, Median(ours));
    worst_laer = std::max(worst_laer, Median(laer));
    report->Set("fixed_max_over_mean_" + name, Median(fixed));
    report->Set("feplb_max_over_mean_" + name, Median(greedy));
    report->Set("laer_max_over_mean_" + name, Median(laer));
    report->Set("composed_max_over_mean_" + name, Median(ours));
    report->Set("composed_bytes_of_feplbs_" + name, Median(bytes));
    Check(report->AddSamples("max/mean, LAER, " + name, "", laer));
    Check(report->AddSamples("max/mean, composed, " + name, "", ours));
    Check(report->AddSamples("bytes of FEPLB's, composed, " + name, "", bytes));
  }
  report->Set("laer_max_over_mean", worst_laer);
  report->Set("composed_max_over_mean", worst);
}

void Iterations(Report* report) {
  const auto cells = ReadIterations(kData + "/iteration_ms.csv");
  Check(cells.status());
  const auto modelled = ModelIterations(*cells, "wikitext");
  Check(modelled.status());
  fprintf(report->text(), "# modelled iterations: median error %.3f, of those held out %.3f\n",
          modelled->median_error, modelled->median_error_held_out);
  for (const ModelledCell& c : modelled->cells) {
    if (std::abs(c.error) <= kMostError) continue;
    fprintf(report->text(), "  misses: %s %s %s aux %s: %.1f s measured, %.1f s modelled\n",
            c.cell.model.c_str(), c.cell.method.c_str(), c.cell.dataset.c_str(),
            c.cell.aux_loss.c_str(), c.cell.seconds, c.modelled_seconds);
  }
  report->Set("modelled_iteration_error", modelled->median_error);
  report->Set("modelled_iteration_error_held_out", modelled->median_error_held_out);
}

void Planning(const Options& options, Report* report) {
  for (const uint32_t devices : {8U, 16U}) {
    const PlanTimes times = TimePlans(devices, static_cast<int>(options.plans));
    if (times.runtime.empty()) Check(absl::InternalError("the timed plans moved nothing"));
    const std::string shape = "_e128_ep" + std::to_string(devices);
    for (const auto& [us, name, suffix] :
         {std::tuple(&times.runtime, "plan_us", ""),
          std::tuple(&times.runtime_slow_copies, "plan_us", "_copies_10x_slower"),
          std::tuple(&times.balance, "balance_moves_us", "")}) {
      fprintf(report->text(), "# %s%s%s: median %.2f, p99 %.2f, max %.2f us of processor time\n",
              name, shape.c_str(), suffix, Percentile(*us, 0.5), Percentile(*us, 0.99), us->back());
      report->Set(std::string(name) + "_median" + shape + suffix, Percentile(*us, 0.5));
      report->Set(std::string(name) + "_p99" + shape + suffix, Percentile(*us, 0.99));
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Measures the balance, the time and the agreement of plans for micro-batches of experts.",
      "moe_perf");
  app.add_option("--seeds", options.seeds, "traces for each number of devices")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--batches", options.batches, "micro-batches per trace")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--plans", options.plans, "plans that are timed")
      ->check(CLI::Range(100, 10'000'000));
  app.add_option("--inputs", options.inputs,
                 "random inputs for which all ranks must make the same plan")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--layouts", options.layouts, "random inputs for re-layouts")
      ->check(CLI::Range(1, 10'000'000));
  app.add_flag("--json", options.json, "one JSON object on standard output");
  ParseOrExit(&app, argc, argv);

  Report report("moe", options.json);
  report.SetConfig("seeds", options.seeds);
  report.SetConfig("batches", options.batches);
  report.SetConfig("inputs", options.inputs);
  for (const uint32_t devices : {2U, 4U, 8U}) Quality(options, devices, &report);

  ShiftingLoads(options, &report);
  Planning(options, &report);

  const auto hashes = HashPlans(kRanks, options.inputs);
  Check(hashes.status());
  const bool equal =
      std::all_of(hashes->begin(), hashes->end(), [&](uint64_t h) { return h == hashes->front(); });
  fprintf(report.text(), "# %d ranks, %lld inputs: %s (%016llx)\n", kRanks,
          static_cast<long long>(options.inputs), equal ? "equal plans" : "DIFFERENT plans",
          static_cast<unsigned long long>(hashes->front()));
  report.Set("plan_hash_equal", equal);
  Relayouts(options, &report);
  Compositions(options, &report);
  Iterations(&report);
  Check(report.Finish());
  return equal ? 0 : 1;
}

}  // namespace
}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
