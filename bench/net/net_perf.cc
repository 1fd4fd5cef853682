// `./dev bench net`: measures the plugin between two processes on this machine, in turns within one
// run with a baseline: TCP here, perftest's programs in over_verbs.cc.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/lib/command_line.h"
#include "bench/lib/report.h"
#include "bench/net/over_nccl.h"
#include "bench/net/over_verbs.h"
#include "bench/net/way.h"
#include "reconfig/base/clock.h"

namespace rewire::bench {

namespace {

struct Options {
  std::string transport = "socket";
  int64_t rounds = 9;
  int64_t gib = 1;
  VerbsOptions verbs;
  std::string libraries;  // folders of builds of NCCL's host code
  bool json = false;
};

// The first size is NCCL's default chunk; the headline ratio uses sizes from kLarge on.
const std::vector<size_t> kStreamed = {512 << 10, 4 << 20, 16 << 20, 64 << 20};
constexpr size_t kLarge = 4 << 20;
const std::vector<size_t> kSmall = {8, 64, 512, 1024};
constexpr size_t kPings = 3000;
constexpr const char* kPlugin = "plugin";
constexpr const char* kOne = "tcp_1";
constexpr const char* kSpin = "tcp_spin";

void Die(const absl::Status& status) {
  fprintf(stderr, "net_perf: %s\n", status.ToString().c_str());
  exit(1);
}

double CpuSeconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

struct Sample {
  double seconds = 0;
  double cpu = 0;  // processor seconds of both processes
};

// Measures one run of both sides; the sample is the leader's.
template <typename Work>
Sample Timed(const Control& control, const Work& work) {
  control.Meet();
  const double cpu = CpuSeconds();
  const Time begin = Now();
  if (const absl::Status s = work(); !s.ok()) Die(s);
  Sample sample{static_cast<double>(ToNanoseconds(Now() - begin)) / 1e9, CpuSeconds() - cpu};
  if (!control.leads()) {
    control.Send(&sample.cpu, sizeof sample.cpu);
  } else {
    double theirs = 0;
    control.Receive(&theirs, sizeof theirs);
    sample.cpu += theirs;
  }
  return sample;
}

using Ways = std::vector<std::pair<std::string, std::unique_ptr<Way>>>;

Ways Open(const Control& control) {
  Ways ways;
  const auto add = [&](const std::string& name, absl::StatusOr<std::unique_ptr<Way>> way) {
    if (!way.ok()) Die(way.status());
    ways.emplace_back(name, *std::move(way));
  };
  for (const int streams : {1, 2, 4}) {
    add(absl::StrCat("tcp_", streams), RawTcp(control, {.streams = streams}));
  }
  // With a send buffer as short as the plugin's bound of queued bytes in the kernel
  // (net_plugin/socket/stream.h).
  for (const int streams : {2, 4}) {
    add(absl::StrCat("tcp_short_", streams),
        RawTcp(control, {.streams = streams, .send_buffer = 256 << 10}));
  }
  add(kSpin, RawTcp(control, {.spin = true}));
  add(kPlugin, ThroughPlugin(control, REWIRE_NET_PLUGIN, {}));
  return ways;
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// The samples of each way at one size.
using Samples = std::map<std::string, std::vector<double>>;

void Bandwidths(const Control& control, const Ways& ways, const Options& o, Report* report) {
  double worst = 1e9;
  for (const size_t bytes : kStreamed) {
    const size_t count = std::max<size_t>(kDepth, (static_cast<size_t>(o.gib) << 30) / bytes);
    const double gigabytes = static_cast<double>(bytes * count) / 1e9;
    Samples speed;
    Samples cpu;
    for (int64_t round = -1; round < o.rounds; ++round) {  // the first round is a warm-up
      for (const auto& [name, way] : ways) {
        if (name == kSpin) continue;
        const Sample s = Timed(control, [&, w = way.get()] { return w->Stream(bytes, count); });
        if (round < 0) continue;
        speed[name].push_back(gigabytes / s.seconds);
        cpu[name].push_back(s.cpu / gigabytes);
      }
    }
    if (!control.leads()) continue;
    std::string best;
    for (const auto& [name, samples] : speed) {
      if (name != kPlugin && (best.empty() || Median(samples) > Median(speed[best]))) best = name;
    }
    const double ratio = Median(speed[kPlugin]) / Median(speed[best]);
    if (bytes >= kLarge) worst = std::min(worst, ratio);
    fprintf(report->text(), "  %9zu B  %6.2f GB/s %5.3f s/GB   %s %6.2f GB/s %5.3f s/GB   %5.2f\n",
            bytes, Median(speed[kPlugin]), Median(cpu[kPlugin]), best.c_str(), Median(speed[best]),
            Median(cpu[best]), ratio);
    for (const auto& [name, samples] : speed) {
      const std::string key = absl::StrCat(name, "_", bytes);
      if (const absl::Status s = report->AddSamples(key, "GB/s", samples); !s.ok()) Die(s);
      report->Set(absl::StrCat("cpu_s_per_gb_", key), Median(cpu[name]));
    }
    report->Set(absl::StrCat("bw_ratio_vs_tcp_", bytes), ratio);
  }
  if (control.leads()) report->Set("bw_ratio_vs_tcp_large", worst);
}

void Latencies(const Control& control, const Ways& ways, const Options& o, Report* report) {
  double worst = 0;
  for (const size_t bytes : kSmall) {
    Samples us;
    for (int64_t round = -1; round < o.rounds; ++round) {
      for (const auto& [name, way] : ways) {
        if (name != kOne && name != kSpin && name != kPlugin) continue;
        const Sample s =
            Timed(control, [&, w = way.get()] { return w->PingPong(bytes, kPings).status(); });
        if (round >= 0) us[name].push_back(s.seconds * 1e6 / (2 * kPings));
      }
    }
    if (!control.leads()) continue;
    const std::string best = Median(us[kOne]) < Median(us[kSpin]) ? kOne : kSpin;
    const double ratio = Median(us[kPlugin]) / Median(us[best]);
    worst = std::max(worst, ratio);
    fprintf(report->text(), "  %9zu B  %6.2f us %21s %6.2f us %14s %5.2f\n", bytes,
            Median(us[kPlugin]), best.c_str(), Median(us[best]), "", ratio);
    for (const auto& [name, samples] : us) {
      const absl::Status s = report->AddSamples(absl::StrCat(name, "_", bytes), "us", samples);
      if (!s.ok()) Die(s);
    }
  }
  if (control.leads()) report->Set("lat_ratio_vs_tcp_small", worst);
}

void MeasureSocket(const Control& control, const Options& o, Report* report) {
  const Ways ways = Open(control);
  if (control.leads()) {
    fprintf(report->text(),
            "# median of %lld rounds in turns; CPU seconds of both processes\n#\n"
            "#       size   plugin                    best TCP                   ratio\n",
            static_cast<long long>(o.rounds));
  }
  // Latencies come first, on connections that have not carried large messages.
  Latencies(control, ways, o, report);
  Bandwidths(control, ways, o, report);
  control.Meet();
}

// Exits if an option is for the other transport.
void CheckTransport(const CLI::App& app, const Options& o, const char* option,
                    const char* transport) {
  if (app.count(option) == 0 || o.transport == transport) return;
  fprintf(stderr, "net_perf: %s is for --transport=%s\n", option, transport);
  exit(2);
}

Options Parse(int argc, char** argv) {
  Options o;
  CLI::App app(
      "the net plugin against TCP without it on this machine's loopback, or against "
      "perftest between RDMA devices",
      "net_perf");
  app.add_option("--transport", o.transport, "the plugin's transport")
      ->check(CLI::IsMember({"socket", "verbs"}));
  app.add_option("--rounds", o.rounds, "measured rounds of each side, alternating; 33 over verbs")
      ->check(CLI::Range(1, 1000));
  app.add_option("--gib", o.gib, "socket: GiB sent per size and round")->check(CLI::Range(1, 64));
  app.add_option("--messages", o.verbs.messages, "verbs: messages of 64 KiB per round")
      ->check(CLI::Range(100, 100000));
  app.add_option("--pings", o.verbs.pings, "verbs: round trips of 8 bytes per round")
      ->check(CLI::Range(100, 100000));
  app.add_option("--seconds", o.verbs.seconds,
                 "verbs: time in seconds after which no new round begins")
      ->check(CLI::Range(2, 300));
  app.add_option(
      "--libraries", o.libraries,
      "folders of builds of NCCL's host code, each measured: A:B (./dev bench net --nccl)");
  app.add_flag("--json", o.json, "one JSON object on stdout, the text on stderr");
  ParseOrExit(&app, argc, argv);
  if (app.count("--rounds") == 0) {
    if (!o.libraries.empty()) o.rounds = NcclOptions{}.rounds;
    if (o.transport == "verbs") o.rounds = VerbsOptions{}.pairs;
  }
  CheckTransport(app, o, "--gib", "socket");
  CheckTransport(app, o, "--messages", "verbs");
  CheckTransport(app, o, "--pings", "verbs");
  CheckTransport(app, o, "--seconds", "verbs");
  o.verbs.pairs = o.rounds;
  return o;
}

void PrepareSocket() {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_IB_DISABLE", "1", 1);
  setenv("NCCL_SOCKET_FAMILY", "AF_INET", 1);
}

int InNccl(const Options& o) {
  Report report("net", o.json);
  report.SetConfig("rounds", o.rounds);
  const NcclOptions options{absl::StrSplit(o.libraries, ':'), o.rounds};
  const absl::Status measured = MeasureNccl(options, &report);
  if (const absl::Status written = report.Finish(); !written.ok()) Die(written);
  if (!measured.ok()) Die(measured);
  return 0;
}

int Main(int argc, char** argv) {
  const Options o = Parse(argc, argv);
  if (!o.libraries.empty()) return InNccl(o);
  const bool verbs = o.transport == "verbs";
  if (!verbs) {
    PrepareSocket();
  } else if (const absl::Status s = PrepareVerbs(); !s.ok()) {
    Die(s);
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    Die(absl::InternalError("socketpair"));
  Report report("net", o.json);
  fflush(nullptr);
  const pid_t child = fork();
  const bool leads = child != 0;
  close(ends[leads ? 1 : 0]);
  const Control control(ends[leads ? 0 : 1], leads);
  if (!verbs) {
    MeasureSocket(control, o, &report);
  } else if (const absl::Status s = MeasureVerbs(control, o.verbs, &report); !s.ok()) {
    Die(s);
  }
  if (!leads) _exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  report.SetConfig("transport", o.transport);
  report.SetConfig("rounds", o.rounds);
  if (verbs) {
    report.SetConfig("messages", o.verbs.messages);
    report.SetConfig("pings", o.verbs.pings);
    report.SetConfig("seconds", o.verbs.seconds);
  } else {
    report.SetConfig("gib", o.gib);
  }
  if (const absl::Status written = report.Finish(); !written.ok()) Die(written);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
