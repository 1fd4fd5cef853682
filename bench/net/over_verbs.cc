#include "bench/net/over_verbs.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/lib/statistics.h"
#include "bench/net/perftest.h"
#include "bench/net/way.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/status_macros.h"

namespace rewire::bench {
namespace {

constexpr size_t kLarge = 64 << 10;
constexpr size_t kSmall = 8;
constexpr size_t kQueuePairs = 1;
constexpr int kTimeout = 16;  // timeout exponent of a queue pair
// perftest's calibration of its clock fails occasionally, so runs are repeated.
constexpr int kAttempts = 5;
constexpr char kNoClock[] = "run perftest: clock frequency not found in any attempt";

const PerftestEnd kFrom{"rxe0", "10.77.0.1", 0};
const PerftestEnd kTo{"rxe1", "10.77.0.2", 1};

// Two programs that poll are slow if they share a processor.
absl::Status StayOn(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("sched_setaffinity: processor=", processor, ": not available"));
}

std::vector<std::string> Arguments(const char* program, size_t bytes, int64_t count) {
  return {
      program, "-s", absl::StrCat(bytes), "-n", absl::StrCat(count), "-u", absl::StrCat(kTimeout)};
}

// Returns number `column` of perftest's result line. Counts the runs without a result.
absl::StatusOr<double> Theirs(const std::vector<std::string>& arguments, size_t bytes,
                              size_t column, int64_t* failures) {
  for (int attempt = 1;; ++attempt) {
    REWIRE_ASSIGN_OR_RETURN(const std::string output, RunPerftest(arguments, kTo, kFrom));
    const absl::StatusOr<std::vector<double>> numbers = ParsePerftest(output, bytes);
    if (!numbers.ok() && !absl::IsUnavailable(numbers.status())) return numbers.status();
    if (numbers.ok() && numbers->at(column) > 0) return numbers->at(column);
    ++*failures;
    if (attempt == kAttempts) return absl::UnavailableError(kNoClock);
  }
}

// Returns the bandwidth in 10^6 bytes per second.
absl::StatusOr<double> TheirBandwidth(const VerbsOptions& o, int64_t* failures) {
  std::vector<std::string> arguments = Arguments("ib_write_bw", kLarge, o.messages);
  arguments.insert(arguments.end(), {"-t", absl::StrCat(kDepth), "-q", absl::StrCat(kQueuePairs)});
  REWIRE_ASSIGN_OR_RETURN(const double mib, Theirs(arguments, kLarge, 3, failures));
  return mib * (1 << 20) / 1e6;
}

// Returns half of a typical round trip, in microseconds.
absl::StatusOr<double> TheirLatency(const VerbsOptions& o, int64_t* failures) {
  const std::vector<std::string> arguments = Arguments("ib_send_lat", kSmall, o.pings);
  return Theirs(arguments, kSmall, 4, failures);
}

absl::StatusOr<double> OurBandwidth(const Control& control, Way* way, const VerbsOptions& o) {
  control.Meet();
  const Time begin = Now();
  REWIRE_RETURN_IF_ERROR(way->Stream(kLarge, static_cast<size_t>(o.messages)));
  return static_cast<double>(kLarge) * static_cast<double>(o.messages) * 1e3 /
         static_cast<double>(ToNanoseconds(Now() - begin));
}

absl::StatusOr<double> OurLatency(const Control& control, Way* way, const VerbsOptions& o) {
  control.Meet();
  REWIRE_ASSIGN_OR_RETURN(std::vector<Duration> took,
                          way->PingPong(kSmall, static_cast<size_t>(o.pings)));
  std::nth_element(took.begin(), took.begin() + o.pings / 2, took.end());
  return static_cast<double>(ToNanoseconds(took[static_cast<size_t>(o.pings / 2)])) / 2e3;
}

// Returns the leader's value of `more` on both sides.
bool GoOn(const Control& control, bool more) {
  if (control.leads()) {
    control.Send(&more, sizeof more);
  } else {
    control.Receive(&more, sizeof more);
  }
  return more;
}

struct Pairs {
  std::vector<double> ours;
  std::vector<double> theirs;
};

// Measures in turns, with perftest first in every other pair. The first pair is a warm-up.
absl::StatusOr<Pairs> Measure(const Control& control, const VerbsOptions& o,
                              const std::function<absl::StatusOr<double>()>& ours,
                              const std::function<absl::StatusOr<double>()>& theirs) {
  Pairs pairs;
  const Time end = Now() + seconds(o.seconds) / 2;
  for (int64_t i = 0; GoOn(control, i <= o.pairs && Now() < end); ++i) {
    std::optional<double> before;
    if (control.leads() && i % 2 == 1) {
      REWIRE_ASSIGN_OR_RETURN(before, theirs());
    }
    REWIRE_ASSIGN_OR_RETURN(const double mine, ours());
    if (!control.leads()) continue;
    if (!before) {
      REWIRE_ASSIGN_OR_RETURN(before, theirs());
    }
    if (i == 0) continue;
    pairs.ours.push_back(mine);
    pairs.theirs.push_back(*before);
  }
  return pairs;
}

struct Headline {
  std::string key;
  double bar;
  size_t bytes;
  std::string program;
  std::string what;
  std::string unit;
};

absl::Status Describe(const Pairs& pairs, const Headline& h, Report* report) {
  REWIRE_ASSIGN_OR_RETURN(const Summary ours, Summarize(pairs.ours));
  REWIRE_ASSIGN_OR_RETURN(const Summary theirs, Summarize(pairs.theirs));
  REWIRE_ASSIGN_OR_RETURN(const Summary ratio, PairedRatio(pairs.ours, pairs.theirs));
  fprintf(report->text(), "  %9zu  %9s  %9.2f %8.2f  %12s  %9.2f %8.2f  %7.3f %7.3f\n", h.bytes,
          h.unit.c_str(), ours.median, ours.spread, h.program.c_str(), theirs.median, theirs.spread,
          ratio.median, ratio.spread);
  report->Set(h.key, ratio.median);
  report->Set(h.key + "_spread", ratio.spread);
  report->Set(h.key + "_pairs", ratio.count);
  report->Set(h.key + "_bar", h.bar);
  const std::string ours_key = absl::StrCat("plugin_", h.what);
  const std::string theirs_key = absl::StrCat(h.program, "_", h.what);
  report->Set(ours_key, ours.median);
  report->Set(ours_key + "_spread", ours.spread);
  report->Set(theirs_key, theirs.median);
  report->Set(theirs_key + "_spread", theirs.spread);
  REWIRE_RETURN_IF_ERROR(report->AddSamples(ours_key, h.unit, pairs.ours));
  return report->AddSamples(theirs_key, h.unit, pairs.theirs);
}

}  // namespace

absl::Status PrepareVerbs() {
  if (std::getenv("REWIRE_VM_DEVICES") == nullptr) {
    return absl::FailedPreconditionError("not in the virtual machine of tests/rdma_vm");
  }
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("REWIRE_NET_REQUIRE", "verbs", 1);
  setenv("REWIRE_NET_QPS", absl::StrCat(kQueuePairs).c_str(), 1);
  setenv("REWIRE_NET_TIMEOUT", absl::StrCat(kTimeout).c_str(), 1);
  return absl::OkStatus();
}

absl::Status MeasureVerbs(const Control& control, const VerbsOptions& o, Report* report) {
  REWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Way> way,
      // ib_write_bw's server sleeps while the client writes. On an emulated processor, a receiver
      // that polls or often wakes would take processor time from the sender.
      ThroughPlugin(control, REWIRE_NET_PLUGIN, {control.leads() ? 0 : 1, true}));
  REWIRE_RETURN_IF_ERROR(StayOn(control.leads() ? kFrom.processor : kTo.processor));
  int64_t failures = 0;
  REWIRE_ASSIGN_OR_RETURN(const Pairs latency,
                          Measure(
                              control, o, [&] { return OurLatency(control, way.get(), o); },
                              [&] { return TheirLatency(o, &failures); }));
  REWIRE_ASSIGN_OR_RETURN(const Pairs bandwidth,
                          Measure(
                              control, o, [&] { return OurBandwidth(control, way.get(), o); },
                              [&] { return TheirBandwidth(o, &failures); }));
  if (!control.leads()) return absl::OkStatus();
  fprintf(report->text(),
          "# median and spread of up to %lld pairs in turns; %zu queue pair, %zu messages at a "
          "time, %lld "
          "of 64 KiB and %lld of 8 bytes each time\n#\n"
          "# %8s  %9s  %9s %8s  %12s  %9s %8s  %7s %7s\n",
          static_cast<long long>(o.pairs), kQueuePairs, kDepth, static_cast<long long>(o.messages),
          static_cast<long long>(o.pings), "size", "unit", "plugin", "spread", "perftest", "",
          "spread", "ratio", "spread");
  REWIRE_RETURN_IF_ERROR(Describe(
      latency, {"lat_ratio_vs_ib_send_lat", 1.5, kSmall, "ib_send_lat", "us", "us"}, report));
  REWIRE_RETURN_IF_ERROR(Describe(
      bandwidth, {"bw_ratio_vs_ib_write_bw", 0.9, kLarge, "ib_write_bw", "mb_per_s", "MB/s"},
      report));
  report->Set("perftest_repeated", failures);
  report->SetConfig("queue_pairs", kQueuePairs);
  report->SetConfig("depth", kDepth);
  return absl::OkStatus();
}

}  // namespace rewire::bench
