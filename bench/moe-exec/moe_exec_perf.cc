// `./dev bench moe-exec`: runs a few layers of experts in processes on the simulated GPU three
// times: without balancing, with balancing, and with balancing and 10 times slower copies. Compares
// the results, which must be equal. Durations are virtual time; planning counts with its processor
// time on this machine. Then repeats the runs with several seeds, intervals of weight changes and
// numbers of layers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/lib/command_line.h"
#include "bench/lib/report.h"
#include "bench/lib/statistics.h"
#include "bench/moe-exec/growth_sweep.h"
#include "bench/moe-exec/measured_run.h"
#include "bench/moe/planning.h"

namespace rewire::bench {
namespace {

constexpr int kTimedPlans = 2000;

struct Options {
  RunSetting run;
  int64_t seeds = 6;
  int64_t plan_us = 0;
  bool json = false;
};

// The comparison of experts' gradients without and with balancing. A split expert had a move of
// only some of its tokens; the gradients of all other experts must be bit-identical.
struct GradientComparison {
  uint64_t whole = 0;       // experts that were moved, always with all their tokens
  uint64_t split = 0;       // split experts
  bool whole_equal = true;  // the gradients of all experts that are not split are bit-identical
  double split_error = 0;   // relative to the largest of the expert's gradients
};

GradientComparison Compare(const Outcome& plain, const Outcome& balanced, size_t weights) {
  GradientComparison out;
  for (size_t rank = 0; rank < plain.gradients.size(); ++rank) {
    for (size_t e = 0; e < balanced.split[rank].size(); ++e) {
      const float* a = &plain.gradients[rank][e * weights];
      const float* b = &balanced.gradients[rank][e * weights];
      double most = 0, off = 0;
      for (size_t i = 0; i < weights; ++i) {
        most = std::max<double>(most, std::abs(a[i]));
        off = std::max<double>(off, std::abs(a[i] - b[i]));
      }
      const uint8_t split = balanced.split[rank][e];
      if (split == 2) {
        ++out.split;
        out.split_error = std::max(out.split_error, off / most);
        continue;
      }
      out.whole += split;
      out.whole_equal = out.whole_equal && off == 0;
    }
  }
  return out;
}

template <typename Get>
bool Equal(const Outcome& a, const Outcome& b, const Outcome& c, Get get) {
  for (size_t i = 0; i < a.results.size(); ++i) {
    if (get(a.results[i]) != get(b.results[i]) || get(a.results[i]) != get(c.results[i])) {
      return false;
    }
  }
  return true;
}

// Returns the ratio of the copied bytes to the bytes that the moves must copy.
double OverFormula(const Outcome& out) {
  return static_cast<double>(out.sum.peer_bytes) / static_cast<double>(out.sum.formula_bytes);
}

// Sets the virtual time of planning: --plan-us if it is not 0, and otherwise the 99th percentile of
// the processor time of PlanNode().
void ChargePlanning(Options* o) {
  o->run.plan_ns = o->run.plan_ns_slow_copies = static_cast<uint64_t>(o->plan_us) * 1000;
  if (o->plan_us != 0) return;
  const PlanTimes times = TimePlans(static_cast<uint32_t>(o->run.devices), kTimedPlans);
  if (times.runtime.empty()) return;
  o->run.plan_ns = static_cast<uint64_t>(Percentile(times.runtime, 0.99) * 1000);
  o->run.plan_ns_slow_copies =
      static_cast<uint64_t>(Percentile(times.runtime_slow_copies, 0.99) * 1000);
}

double Median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return Percentile(samples, 0.5);
}

double Most(const std::vector<double>& samples) {
  return *std::max_element(samples.begin(), samples.end());
}

double Least(const std::vector<double>& samples) {
  return *std::min_element(samples.begin(), samples.end());
}

// Reports the sweep: the values of all seeds of each setting, their median and the worst value.
void ReportSweep(const std::vector<SweptSetting>& settings, Report* report) {
  const std::string growth = "critical_path_growth";
  const std::string slow = "speedup_over_plain_copies_10x_slower";
  std::vector<double> all_growth, all_slow, all_speedup;
  fprintf(report->text(), "# growth of the critical path with copies 10 times slower, by seed\n");
  for (const SweptSetting& s : settings) {
    fprintf(report->text(), "  %-16s", s.name.c_str());
    for (const double g : s.growth) fprintf(report->text(), " %7.4f", g);
    fprintf(report->text(), "  median %.4f, worst %.4f; speed-up at least %.3f, slow %.3f\n",
            Median(s.growth), Most(s.growth), Least(s.speedup), Least(s.speedup_slow_copies));
    report->Set(growth + "_" + s.name, s.growth);
    report->Set(growth + "_median_" + s.name, Median(s.growth));
    report->Set(growth + "_worst_" + s.name, Most(s.growth));
    report->Set("speedup_over_plain_least_" + s.name, Least(s.speedup));
    report->Set(slow + "_least_" + s.name, Least(s.speedup_slow_copies));
    all_growth.insert(all_growth.end(), s.growth.begin(), s.growth.end());
    all_slow.insert(all_slow.end(), s.speedup_slow_copies.begin(), s.speedup_slow_copies.end());
    all_speedup.insert(all_speedup.end(), s.speedup.begin(), s.speedup.end());
  }
  report->Set(growth + "_median_over_settings", Median(all_growth));
  report->Set(growth + "_worst_over_seeds", Most(all_growth));
  report->Set("speedup_over_plain_worst_over_seeds", Least(all_speedup));
  report->Set(slow + "_worst_over_seeds", Least(all_slow));
}

int Main(int argc, char** argv) {
  Options o;
  CLI::App app("measures expert balancing by copy engines on the simulated GPU", "moe-exec_perf");
  app.add_option("--devices", o.run.devices,
                 "processes with one device each; they share 128 experts")
      ->check(CLI::Range(2, 16));
  app.add_option("--layers", o.run.layers, "expert-parallel layers")->check(CLI::Range(1, 16));
  app.add_option("--micro-batches", o.run.micro_batches, "micro-batches, each forward and backward")
      ->check(CLI::Range(1, 1000));
  app.add_option("--step", o.run.step, "micro-batches from one change of the weights to the next")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seed", o.run.seed, "seed of the trace")->check(CLI::Range(1, 1000000));
  app.add_option("--seeds", o.seeds, "seeds of the sweep over settings; 0: no sweep")
      ->check(CLI::Range(0, 1000));
  app.add_option("--plan-us", o.plan_us,
                 "virtual time of planning in us; 0: as measured on this machine")
      ->check(CLI::Range(0, 100000));
  app.add_flag("--json", o.json, "one JSON object on stdout, the text on stderr");
  ParseOrExit(&app, argc, argv);
  if (128 % o.run.devices != 0) {
    fprintf(stderr, "moe-exec_perf: --devices=%lld: must divide 128 (experts)\n",
            static_cast<long long>(o.run.devices));
    return 2;
  }
  Report report("moe-exec", o.json);
  ChargePlanning(&o);
  const Outcome plain = Measure(o.run, Kind::kPlain);
  const Outcome balanced = Measure(o.run, Kind::kBalanced);
  const Outcome slow = Measure(o.run, Kind::kBalancedSlowCopies);
  const LayerRunOptions run = OptionsOf(o.run, Kind::kBalanced);
  const GradientComparison gradients = Compare(plain, balanced, run.expert.weights());
  const GradientComparison slows = Compare(plain, slow, run.expert.weights());

  const bool phase1 =
      Equal(plain, balanced, slow, [](const LayerRunResult& r) { return r.nccl_trace; }) &&
      Equal(plain, balanced, slow, [](const LayerRunResult& r) { return r.dispatched; });
  const bool forward =
      Equal(plain, balanced, slow, [](const LayerRunResult& r) { return r.forward; });
  const bool backward =
      Equal(plain, balanced, slow, [](const LayerRunResult& r) { return r.backward; });
  const auto ms = [](const Outcome& out) { return static_cast<double>(out.sum.critical_ns) / 1e6; };
  const double growth = ms(slow) / ms(balanced) - 1;

  FILE* const text = report.text();
  fprintf(text, "# %lld processes, %lld layers, %lld micro-batches; virtual time\n",
          static_cast<long long>(o.run.devices), static_cast<long long>(o.run.layers),
          static_cast<long long>(o.run.micro_batches));
  fprintf(text, "critical path: plain %.2f ms, balanced %.2f ms, copies 10 times slower %.2f ms\n",
          ms(plain), ms(balanced), ms(slow));
  fprintf(text, "moves: %llu, of a whole expert %llu; late rounds %llu, with slow copies %llu\n",
          static_cast<unsigned long long>(balanced.sum.given),
          static_cast<unsigned long long>(balanced.sum.given_whole),
          static_cast<unsigned long long>(balanced.sum.late_rounds),
          static_cast<unsigned long long>(slow.sum.late_rounds));
  fprintf(text, "gradients of split experts: %llu, off by at most %.2g of the largest\n",
          static_cast<unsigned long long>(gradients.split), gradients.split_error);
  report.Set("phase1_identical", phase1);
  report.Set("bit_equal_fwd", forward);
  report.Set("bit_equal_bwd", backward);
  report.Set("bit_equal_dw_whole",
             gradients.whole > 0 && gradients.whole_equal && slows.whole_equal);
  report.Set("experts_moved_whole", gradients.whole);
  report.Set("experts_split", gradients.split);
  report.Set("dw_split_error", std::max(gradients.split_error, slows.split_error));
  report.Set("copy_bytes_over_formula", OverFormula(balanced));
  report.Set("copy_bytes_over_formula_copies_10x_slower", OverFormula(slow));
  report.Set("allocations_after_init", balanced.sum.allocations + slow.sum.allocations);
  report.Set("critical_path_growth_copies_10x_slower", growth);
  report.Set("critical_path_growth_copies_10x_slower_bar", 0.02);
  report.Set("speedup_over_plain", ms(plain) / ms(balanced));
  report.Set("speedup_over_plain_copies_10x_slower", ms(plain) / ms(slow));
  report.Set("moves", balanced.sum.given);
  report.Set("late_rounds", balanced.sum.late_rounds);
  report.Set("late_rounds_copies_10x_slower", slow.sum.late_rounds);
  report.Set("plan_us_charged", static_cast<double>(o.run.plan_ns) / 1e3);
  report.Set("plan_us_charged_copies_10x_slower",
             static_cast<double>(o.run.plan_ns_slow_copies) / 1e3);
  if (o.seeds > 0) ReportSweep(SweepGrowth(o.run, o.seeds), &report);
  report.SetConfig("seeds", o.seeds);
  report.SetConfig("devices", o.run.devices);
  report.SetConfig("layers", o.run.layers);
  report.SetConfig("micro_batches", o.run.micro_batches);
  report.SetConfig("step", o.run.step);
  report.SetConfig("seed", o.run.seed);
  report.SetConfig("simulated", true);
  if (const absl::Status written = report.Finish(); !written.ok()) {
    fprintf(stderr, "moe-exec_perf: %s\n", std::string(written.message()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
