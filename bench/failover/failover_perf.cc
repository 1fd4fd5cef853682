// `./dev bench failover`: measures how long a failed rail interrupts messages, after a failure with
// a port event and after a silent failure. Also counts corrupt, lost and duplicated messages, and
// errors that NCCL would see. Runs in the virtual machine of tests/rdma_vm.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/failover/trial.h"
#include "bench/lib/command_line.h"
#include "bench/lib/report.h"
#include "reconfig/base/clock.h"

namespace rewire::bench {
namespace {

constexpr uint64_t kMessages = 60;

struct Options {
  int64_t repeats = 5;
  int64_t seconds = 300;
  int64_t timeout = 14;
  int64_t retries = 2;
  bool json = false;
};

struct Kind {
  const char* fault;
  const char* repair;
  bool silent;
};

// Each fault occurs at the sender (rxe0 and rxe1) and at the receiver (rxe2 and rxe3).
constexpr Kind kKinds[] = {
    {"rxe0 unplug", "rxe0 plug", false}, {"rxe0 netem loss 100%", "rxe0 clear", true},
    {"rxe3 unplug", "rxe3 plug", false}, {"rxe3 netem loss 100%", "rxe3 clear", true},
    {"rxe1 down", "rxe1 up", false},     {"rxe1 netem loss 100%", "rxe1 clear", true},
    {"rxe2 down", "rxe2 up", false},     {"rxe2 netem loss 100%", "rxe2 clear", true},
};

struct Gaps {
  std::vector<double> undisturbed;                 // all gaps of the runs without a fault
  std::vector<double> longest_undisturbed;         // the longest gap of each run without a fault
  std::vector<double> longest[std::size(kKinds)];  // the longest gap of each run with the fault
};

double Longest(const Trial::Gaps& gaps) { return *std::max_element(gaps.begin(), gaps.end()); }

// Carries messages without a fault, then during a fault of this kind, and then during its repair.
// Adds the gaps of the first two runs to `out`.
absl::Status Once(Trial* trial, size_t kind, Gaps* out) {
  const auto before = trial->Carry(kMessages);
  if (!before.ok()) return before.status();
  const auto during = trial->Break(kKinds[kind].fault, kMessages);
  if (!during.ok()) return during.status();
  out->undisturbed.insert(out->undisturbed.end(), before->begin(), before->end());
  out->longest_undisturbed.push_back(Longest(*before));
  out->longest[kind].push_back(Longest(*during));
  const auto after = trial->Disturb(kKinds[kind].repair, kMessages);
  if (!after.ok()) return after.status();
  return trial->AwaitRails();
}

// Measures all kinds in turns, so that drift of the machine affects all of them.
absl::Status Measure(Trial* trial, const Options& o, Gaps* out) {
  const Time end = Now() + seconds(o.seconds);
  for (int64_t i = 0; i < o.repeats; ++i) {
    for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
      if (Now() > end) return absl::OkStatus();
      if (absl::Status s = Once(trial, kind, out); !s.ok()) return s;
    }
  }
  return absl::OkStatus();
}

// Reports the median as headline `key`, with spread, maximum, number of samples and limit (`bar`).
absl::Status Headline(const std::string& key, const std::vector<double>& samples, double bar,
                      Report* report) {
  const absl::StatusOr<Summary> s = Summarize(samples);
  if (!s.ok()) return s.status();
  report->Set(key, s->median);
  report->Set(key + "_spread", s->spread);
  report->Set(key + "_max", s->max);
  report->Set(key + "_repeats", s->count);
  report->Set(key + "_bar", bar);
  fprintf(report->text(), "  %-28s %8.1f (%.1f), %zu times, at most %.1f; limit %.1f\n",
          key.c_str(), s->median, s->spread, s->count, s->max, bar);
  return report->AddSamples(key, "ms", samples);
}

absl::Status Describe(const Gaps& gaps, const Options& o, Report* report) {
  const absl::StatusOr<Summary> usual = Summarize(gaps.undisturbed);
  const absl::StatusOr<Summary> noise = Summarize(gaps.longest_undisturbed);
  if (!usual.ok()) return usual.status();
  if (!noise.ok()) return noise.status();
  fprintf(
      report->text(),
      "# longest gap between messages minus the usual %.2f ms: median (spread) in ms; without a "
      "fault the longest gap is %.1f (%.1f) ms\n",
      usual->median, noise->median, noise->spread);
  std::vector<double> of[2];
  for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
    std::vector<double> blackouts = gaps.longest[kind];
    for (double& gap : blackouts) gap -= usual->median;
    if (blackouts.empty()) continue;
    std::vector<double>& all = of[kKinds[kind].silent ? 1 : 0];
    all.insert(all.end(), blackouts.begin(), blackouts.end());
    const absl::StatusOr<Summary> s = Summarize(blackouts);
    if (!s.ok()) return s.status();
    fprintf(report->text(), "  %-28s %8.1f (%.1f), %zu times\n", kKinds[kind].fault, s->median,
            s->spread, s->count);
    const absl::Status added = report->AddSamples(kKinds[kind].fault, "ms", blackouts);
    if (!added.ok()) return added;
  }
  // A silent failure is detected after timeout * (retries + 1); the limit is twice this time.
  const double timeout_ms = 4.096e-3 * static_cast<double>(int64_t{1} << o.timeout);
  const double bar = 2 * timeout_ms * static_cast<double>(o.retries + 1);
  if (absl::Status s = Headline("blackout_ms_port_event", of[0], 100, report); !s.ok()) return s;
  if (absl::Status s = Headline("blackout_ms_silent", of[1], bar, report); !s.ok()) return s;
  report->Set("gap_ms_undisturbed", usual->median);
  return report->AddSamples("longest_gap_undisturbed", "ms", gaps.longest_undisturbed);
}

int Main(int argc, char** argv) {
  Options o;
  CLI::App app("measures the pause of messages when one of two rails fails", "failover_perf");
  app.add_option("--repeats", o.repeats, "repetitions of each fault")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", o.seconds, "time in seconds after which no new fault begins")
      ->check(CLI::Range(1, 300));
  app.add_option("--timeout", o.timeout, "value of REWIRE_NET_TIMEOUT")->check(CLI::Range(1, 24));
  app.add_option("--retries", o.retries, "value of REWIRE_NET_RETRIES")->check(CLI::Range(0, 6));
  app.add_flag("--json", o.json, "one JSON object on stdout, the text on stderr");
  ParseOrExit(&app, argc, argv);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("REWIRE_NET_REQUIRE", "verbs", 1);
  setenv("REWIRE_LOG", "error", 0);  // failed rails are expected here
  setenv("REWIRE_NET_TIMEOUT", absl::StrCat(o.timeout).c_str(), 1);
  setenv("REWIRE_NET_RETRIES", absl::StrCat(o.retries).c_str(), 1);
  const auto trial = Trial::Open();
  if (!trial.ok()) {
    fprintf(stderr, "failover_perf: %s\n", trial.status().ToString().c_str());
    return 1;
  }
  Report report("failover", o.json);
  Gaps gaps;
  const absl::Status measured = Measure(trial->get(), o, &gaps);
  const absl::Status described = Describe(gaps, o, &report);
  const Flow& flow = (*trial)->flow();
  const Arrivals& a = flow.arrivals();
  report.Set("corrupt", a.corrupt());
  report.Set("lost", a.lost());
  report.Set("duplicated", a.duplicated());
  report.Set("errors_seen_by_nccl", flow.errors());
  report.Set("messages", a.next());
  report.Set("rails_failed", (*trial)->rails_failed());
  report.SetConfig("repeats", o.repeats);
  report.SetConfig("seconds", o.seconds);
  report.SetConfig("timeout", o.timeout);
  report.SetConfig("retries", o.retries);
  fprintf(
      report.text(), "  of %llu messages %llu corrupt, %llu lost, %llu duplicated; %llu errors\n",
      static_cast<unsigned long long>(a.next()), static_cast<unsigned long long>(a.corrupt()),
      static_cast<unsigned long long>(a.lost()), static_cast<unsigned long long>(a.duplicated()),
      static_cast<unsigned long long>(flow.errors()));
  const absl::Status written = report.Finish();
  bool good = a.flawless();
  for (const absl::Status& s : {measured, described, written}) {
    if (s.ok()) continue;
    fprintf(stderr, "failover_perf: %s\n", s.ToString().c_str());
    good = false;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
