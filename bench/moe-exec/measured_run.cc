#include "bench/moe-exec/measured_run.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace rewire::bench {
namespace {

// NVLink's 450 GB/s and a device's own 1500 GB/s, scaled by 24 KiB / 72 MiB of an expert's weights.
// Copies within a device do not use a copy engine.
constexpr uint64_t kPeerMbps = 150;
constexpr uint64_t kLocalMbps = 500;
// A plan is never late here because of a busy processor.
constexpr Duration kPatience = seconds(20);

constexpr Duration kDeadline = seconds(300);

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kPlain:
      return "plain";
    case Kind::kBalanced:
      return "balanced";
    case Kind::kBalancedSlowCopies:
      return "slow";
  }
  return "";
}

}  // namespace

LayerRunOptions OptionsOf(const RunSetting& o, Kind kind) {
  LayerRunOptions run;
  run.simgpu = REWIRE_SIMGPU;
  run.name = absl::StrCat("bench-", getpid(), "-", NameOf(kind));
  run.trace.devices = static_cast<uint32_t>(o.devices);
  run.layers = static_cast<uint32_t>(o.layers);
  run.micro_batches = static_cast<uint32_t>(o.micro_batches);
  run.step = static_cast<uint32_t>(o.step);
  run.seed = static_cast<uint64_t>(o.seed);
  run.balance = kind != Kind::kPlain;
  run.plan_ns = kind == Kind::kBalancedSlowCopies ? o.plan_ns_slow_copies : o.plan_ns;
  run.balancer.patience = kPatience;
  return run;
}

Outcome Measure(const RunSetting& o, Kind kind) {
  const LayerRunOptions run = OptionsOf(o, kind);
  const uint64_t slower = kind == Kind::kBalancedSlowCopies ? 10 : 1;
  setenv("SIMGPU_DEVICES", absl::StrCat(o.devices).c_str(), 1);
  setenv("SIMGPU_PEER_MBPS", absl::StrCat(kPeerMbps / slower).c_str(), 1);
  setenv("SIMGPU_LOCAL_MBPS", absl::StrCat(kLocalMbps).c_str(), 1);
  Crew crew(run.trace.devices, LayerRunBytes(run));
  const std::vector<int> statuses =
      crew.Run([&](uint32_t rank) { return RunLayers(crew, run, rank); }, kDeadline);
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    if (statuses[rank] == 0) continue;
    fprintf(stderr, "moe-exec: %s: rank %zu ended with %d\n", NameOf(kind), rank, statuses[rank]);
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
    out.sum.critical_ns = r.critical_ns;  // equal in all processes
    out.sum.allocations += r.allocations;
    out.sum.peer_bytes += r.peer_bytes;
    out.sum.formula_bytes += r.formula_bytes;
    out.sum.given += r.given;
    out.sum.given_whole += r.given_whole;
    out.sum.late_rounds += r.late_rounds;
  }
  return out;
}

}  // namespace rewire::bench
