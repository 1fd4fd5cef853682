// `./dev bench moe-exec`: a few layers of experts over processes of the simulated GPU, without
// balancing, with it, and with copy engines a tenth as fast. What is computed must be the same;
// what it takes is virtual time.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/lib/flags.h"
#include "bench/lib/report.h"
#include "bench/moe-exec/layer_run.h"

namespace rewire::bench {
namespace {

// NVLink's 450 GB/s and a device's own 1500 GB/s where 72 MiB of an expert's weights are 24 KiB. A
// copy within a device is no copy engine's.
constexpr uint64_t kPeerMbps = 150;
constexpr uint64_t kLocalMbps = 500;
// A plan is never late here for want of a processor.
constexpr Duration kPatience = seconds(20);

struct Options {
  int64_t devices = 8;
  int64_t layers = 2;
  int64_t micro_batches = 12;
  int64_t step = 12;
  int64_t seed = 1;
  bool json = false;
};

struct Outcome {
  std::vector<LayerRunResult> results;
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<uint8_t>> split;
  LayerRunResult sum{};
};

LayerRunOptions OptionsOf(const Options& o, bool balance, const char* name) {
  LayerRunOptions run;
  run.simgpu = REWIRE_SIMGPU;
  run.name = absl::StrCat("bench-", getpid(), "-", name);
  run.trace.devices = static_cast<uint32_t>(o.devices);
  run.layers = static_cast<uint32_t>(o.layers);
  run.micro_batches = static_cast<uint32_t>(o.micro_batches);
  run.step = static_cast<uint32_t>(o.step);
  run.seed = static_cast<uint64_t>(o.seed);
  run.balance = balance;
  run.balancer.patience = kPatience;
  return run;
}

Outcome Measure(const Options& o, bool balance, uint64_t slower, const char* name) {
  const LayerRunOptions run = OptionsOf(o, balance, name);
  setenv("SIMGPU_DEVICES", absl::StrCat(o.devices).c_str(), 1);
  setenv("SIMGPU_PEER_MBPS", absl::StrCat(kPeerMbps / slower).c_str(), 1);
  setenv("SIMGPU_LOCAL_MBPS", absl::StrCat(kLocalMbps).c_str(), 1);
  Crew crew(run.trace.devices, LayerRunBytes(run));
  const std::vector<int> statuses =
      crew.Run([&](uint32_t rank) { return RunLayers(crew, run, rank); }, seconds(300));
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    if (statuses[rank] == 0) continue;
    fprintf(stderr, "moe-exec: %s: rank %zu ended with %d\n", name, rank, statuses[rank]);
    exit(1);
  }
  Outcome out;
  const size_t own = size_t{run.layers} * run.trace.experts / run.trace.devices;
  for (uint32_t rank = 0; rank < run.trace.devices; ++rank) {
    const LayerRunResult& r = ResultOf(crew, rank);
    out.results.push_back(r);
    const float* gradients = GradientsOf(crew, run, rank);
    out.gradients.emplace_back(gradients, gradients + own * run.expert.weights());
    const uint8_t* split = SplitOf(crew, run, rank);
    out.split.emplace_back(split, split + own);
    out.sum.critical_ns = r.critical_ns;  // the same for all
    out.sum.allocations += r.allocations;
    out.sum.peer_bytes += r.peer_bytes;
    out.sum.formula_bytes += r.formula_bytes;
    out.sum.given += r.given;
    out.sum.given_whole += r.given_whole;
    out.sum.late_rounds += r.late_rounds;
  }
  return out;
}

// Of experts' gradients: how many were only ever moved as a whole, whether all of these are equal
// to the bit, and how far those of split ones are off.
struct GradientComparison {
  uint64_t whole = 0;
  uint64_t split = 0;
  bool whole_equal = true;
  double split_error = 0;  // of the largest of the expert's gradients
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

double OverFormula(const Outcome& out) {
  return static_cast<double>(out.sum.peer_bytes) / static_cast<double>(out.sum.formula_bytes);
}

int Main(int argc, char** argv) {
  Options o;
  Flags flags("moe-exec_perf", "experts balanced by copy engines, on the simulated GPU");
  flags.Int("--devices", &o.devices, 2, 16, "processes, a device each; they share 128 experts");
  flags.Int("--layers", &o.layers, 1, 16, "expert-parallel layers");
  flags.Int("--micro-batches", &o.micro_batches, 1, 1000, "forward and backward");
  flags.Int("--step", &o.step, 1, 1000, "micro-batches from one change of the weights to the next");
  flags.Int("--seed", &o.seed, 1, 1000000, "of the trace");
  flags.Switch("--json", &o.json, "one JSON object on stdout, the text on stderr");
  flags.ParseOrExit(argc, argv);
  if (128 % o.devices != 0) {
    fprintf(stderr, "moe-exec_perf: --devices=%lld does not divide 128\n",
            static_cast<long long>(o.devices));
    return 2;
  }
  Report report("moe-exec", o.json);
  const Outcome plain = Measure(o, false, 1, "plain");
  const Outcome balanced = Measure(o, true, 1, "balanced");
  const Outcome slow = Measure(o, true, 10, "slow");
  const LayerRunOptions run = OptionsOf(o, true, "");
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
          static_cast<long long>(o.devices), static_cast<long long>(o.layers),
          static_cast<long long>(o.micro_batches));
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
  report.SetConfig("devices", o.devices);
  report.SetConfig("layers", o.layers);
  report.SetConfig("micro_batches", o.micro_batches);
  report.SetConfig("step", o.step);
  report.SetConfig("seed", o.seed);
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
