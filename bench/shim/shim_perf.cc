// The shim's overhead per call: ncclAllReduce through the preloaded library against pncclAllReduce
// of the same do-nothing library. Both run warm, in interleaved pairs of short runs.
//
// Allocations and locks of the measured calls are counted by interposition (interposed.h).
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/lib/command_line.h"
#include "bench/lib/report.h"
#include "bench/lib/statistics.h"
#include "bench/shim/interposed.h"
#include "rewire_nccl_api.h"

namespace rewire::bench {

namespace {

constexpr int kInGroup = 8;

struct Options {
  bool json = false;
  int64_t pairs = 401;
  int64_t calls = 20000;
};

[[noreturn]] void Die(const std::string& why) {
  fprintf(stderr, "shim_perf: %s\n", why.c_str());
  exit(2);
}

// One way to NCCL: through the shim or directly.
struct Way {
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclCommInitRank) init = nullptr;
  ncclComm_t comm = nullptr;
};

template <typename Function>
void Find(void* library, const std::string& name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name.c_str()));
  if (*function == nullptr) Die("no " + name + ": " + dlerror());
}

Way Open(const char* path, const char* prefix) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Die(dlerror());
  Way way;
  Find(library, std::string(prefix) + "AllReduce", &way.all_reduce);
  Find(library, std::string(prefix) + "GroupStart", &way.group_start);
  Find(library, std::string(prefix) + "GroupEnd", &way.group_end);
  Find(library, std::string(prefix) + "CommInitRank", &way.init);
  if (way.init(&way.comm, 1, ncclUniqueId{}, 0) != ncclSuccess) Die("no communicator");
  return way;
}

double Nanoseconds(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - from).count();
}

// Returns the time per call.
double Single(const Way& way, int64_t calls) {
  const auto from = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) {
    way.all_reduce(nullptr, nullptr, 1024, ncclFloat, ncclSum, way.comm, nullptr);
  }
  return Nanoseconds(from) / static_cast<double>(calls);
}

// Returns the time per operation, which includes its share of the group's start and end.
double Grouped(const Way& way, int64_t calls) {
  const int64_t groups = std::max<int64_t>(calls / kInGroup, 1);
  const auto from = std::chrono::steady_clock::now();
  for (int64_t g = 0; g < groups; ++g) {
    way.group_start();
    for (int i = 0; i < kInGroup; ++i) {
      way.all_reduce(nullptr, nullptr, 1024, ncclFloat, ncclSum, way.comm, nullptr);
    }
    way.group_end();
  }
  return Nanoseconds(from) / static_cast<double>(groups * kInGroup);
}

// Nanoseconds, one sample per pair.
struct Result {
  std::vector<double> added;
  std::vector<double> direct;
};

Result Compare(const Way& shim, const Way& direct, const Options& options,
               double (*run)(const Way&, int64_t)) {
  run(shim, options.calls);
  run(direct, options.calls);
  Result result;
  for (int64_t pair = 0; pair < options.pairs; ++pair) {
    // The order alternates, so that state left by the first way favours neither.
    double through = 0;
    double without = 0;
    if (pair % 2 == 0) {
      through = run(shim, options.calls);
      without = run(direct, options.calls);
    } else {
      without = run(direct, options.calls);
      through = run(shim, options.calls);
    }
    result.added.push_back(through - without);
    result.direct.push_back(without);
  }
  return result;
}

struct Spread {
  double p10 = 0;
  double median = 0;
  double p90 = 0;
};

Spread Put(const std::string& key, std::vector<double> samples, Report* report) {
  if (const absl::Status s = report->AddSamples(key, "ns", samples); !s.ok()) Die(s.ToString());
  std::sort(samples.begin(), samples.end());
  const Spread spread = {Percentile(samples, 0.1), Percentile(samples, 0.5),
                         Percentile(samples, 0.9)};
  report->Set(key + "_median", spread.median);
  report->Set(key + "_p10", spread.p10);
  report->Set(key + "_p90", spread.p90);
  return spread;
}

// Puts one kind of call into the report and the text.
void Put(const std::string& kind, const std::string& title, const Result& result, Report* report) {
  const Spread added = Put("added" + kind + "_ns", result.added, report);
  const Spread direct = Put("direct" + kind + "_ns", result.direct, report);
  fprintf(report->text(), "  %-16s %9.2f    %7.2f  %7.2f  %7.2f\n", title.c_str(), direct.median,
          added.p10, added.median, added.p90);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "what the shim adds to ncclAllReduce over a library that does nothing, and what it "
      "allocates and locks meanwhile",
      "shim_perf");
  app.add_option("--pairs", options.pairs, "pairs of runs: through the shim and without it")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--calls", options.calls, "calls per run")->check(CLI::Range(1, 100000000));
  app.add_flag("--json", options.json, "one JSON object on stdout, the text on stderr");
  ParseOrExit(&app, argc, argv);
  if (!PrepareCounting()) Die("libc's locks were not found");
  setenv("REWIRE_NCCL_LIBRARY", REWIRE_NOOP_NCCL, 1);
  unsetenv("REWIRE_SOCKET");
  unsetenv("REWIRE_DISABLE");
  // Making a communicator allocates and locks: this checks that the counters work.
  StartCounting();
  const Way shim = Open(REWIRE_PRELOAD, "nccl");
  const Counted control = StopCounting();
  if (control.allocations == 0 || control.locks == 0) Die("allocations or locks are not seen");
  const Way direct = Open(REWIRE_NOOP_NCCL, "pnccl");
  if (reinterpret_cast<void*>(shim.all_reduce) == reinterpret_cast<void*>(direct.all_reduce)) {
    Die("both ways are the same function");
  }

  Single(shim, options.calls);
  Grouped(shim, options.calls);
  StartCounting();
  Single(shim, options.calls);
  Grouped(shim, options.calls);
  const Counted counted = StopCounting();
  const Result single = Compare(shim, direct, options, Single);
  const Result grouped = Compare(shim, direct, options, Grouped);

  Report report("shim", options.json);
  report.SetConfig("pairs", options.pairs);
  report.SetConfig("calls", options.calls);
  report.SetConfig("in_group", kInGroup);
  fprintf(report.text(),
          "# ncclAllReduce through the shim against pncclAllReduce, library without work\n"
          "# %lld pairs of %lld calls\n#\n"
          "#                 direct(ns)  added p10   median      p90\n",
          static_cast<long long>(options.pairs), static_cast<long long>(options.calls));
  Put("", "single", single, &report);
  Put("_in_group", "in groups of " + std::to_string(kInGroup), grouped, &report);
  report.Set("allocations", counted.allocations);
  report.Set("locks", counted.locks);
  fprintf(report.text(), "  allocations %llu, locks %llu\n",
          static_cast<unsigned long long>(counted.allocations),
          static_cast<unsigned long long>(counted.locks));
  if (const absl::Status written = report.Finish(); !written.ok()) Die(written.ToString());
  return 0;
}

}  // namespace

}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
