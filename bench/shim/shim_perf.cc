// The shim's overhead per call: ncclAllReduce through the preloaded library against pncclAllReduce
// of the same do-nothing library. Both run warm, in interleaved pairs of short runs, on one thread
// and then on several at once, each with a communicator of its own. Times are of the thread's
// processor. shim.py runs this program in a job, so that the shim works as in production.
//
// Allocations and locks of the measured calls are counted by interposition (interposed.h).
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
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
  int threads = 8;
  std::string file;  // of the report
};

[[noreturn]] void Die(const std::string& why) {
  fprintf(stderr, "shim_perf: %s\n", why.c_str());
  exit(2);
}

template <typename Function>
void Find(void* library, const std::string& name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name.c_str()));
  if (*function == nullptr) Die("no " + name + ": " + dlerror());
}

// One way to NCCL: through the shim or directly.
struct Way {
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclGetUniqueId) get_id = nullptr;
  decltype(&ncclCommInitRank) init = nullptr;
};

Way Open(const char* path, const char* prefix) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Die(dlerror());
  Way way;
  Find(library, std::string(prefix) + "AllReduce", &way.all_reduce);
  Find(library, std::string(prefix) + "GroupStart", &way.group_start);
  Find(library, std::string(prefix) + "GroupEnd", &way.group_end);
  Find(library, std::string(prefix) + "GetUniqueId", &way.get_id);
  Find(library, std::string(prefix) + "CommInitRank", &way.init);
  return way;
}

// The driver, which a process with GPUs has loaded. Then the shim of a job asks it for each
// operation whether the stream is captured.
class Driver {
 public:
  Driver() {
    library_ = dlopen("libcuda.so.1", RTLD_NOW);
    if (library_ == nullptr) return;
    int (*init)(unsigned) = nullptr;
    int (*retain)(void**, int) = nullptr;
    Find(library_, "cuInit", &init);
    Find(library_, "cuDevicePrimaryCtxRetain", &retain);
    Find(library_, "cuStreamIsCapturing", &is_capturing_);
    if (init(0) != 0 || retain(&context_, 0) != 0) Die("no device");
  }
  [[nodiscard]] bool found() const { return library_ != nullptr; }
  // Makes the device current on this thread. Returns a new stream; nullptr without a driver.
  [[nodiscard]] cudaStream_t MakeStream() const {
    if (!found()) return nullptr;
    int (*make_current)(void*) = nullptr;
    int (*create)(cudaStream_t*, unsigned) = nullptr;
    Find(library_, "cuCtxSetCurrent", &make_current);
    Find(library_, "cuStreamCreate", &create);
    cudaStream_t stream = nullptr;
    if (make_current(context_) != 0 || create(&stream, 1) != 0) Die("no stream");
    return stream;
  }

  // The shim's question after each operation.
  void AskForCapture(cudaStream_t stream) const {
    int status = 0;
    if (is_capturing_ != nullptr) is_capturing_(stream, &status);
  }

 private:
  void* library_ = nullptr;
  void* context_ = nullptr;
  int (*is_capturing_)(cudaStream_t, int*) = nullptr;
};

// A thread's communicator over one way.
struct Caller {
  Caller(const Way& over, cudaStream_t on) : way(over), stream(on) {
    ncclUniqueId id;
    const bool made = way.get_id(&id) == ncclSuccess && way.init(&comm, 1, id, 0) == ncclSuccess;
    if (!made) Die("no communicator");
  }
  void AllReduce() const {
    way.all_reduce(nullptr, nullptr, 1024, ncclFloat, ncclSum, comm, stream);
  }
  const Way& way;
  const cudaStream_t stream;
  ncclComm_t comm = nullptr;
};

double Nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Returns the time per call.
double Single(const Caller& caller, int64_t calls) {
  const double from = Nanoseconds();
  for (int64_t i = 0; i < calls; ++i) caller.AllReduce();
  return (Nanoseconds() - from) / static_cast<double>(calls);
}

// Returns the time per operation, which includes its share of the group's start and end.
double Grouped(const Caller& caller, int64_t calls) {
  const int64_t groups = std::max<int64_t>(calls / kInGroup, 1);
  const double from = Nanoseconds();
  for (int64_t g = 0; g < groups; ++g) {
    caller.way.group_start();
    for (int i = 0; i < kInGroup; ++i) caller.AllReduce();
    caller.way.group_end();
  }
  return (Nanoseconds() - from) / static_cast<double>(groups * kInGroup);
}

// Returns the driver's time per answer.
double Query(const Driver& driver, cudaStream_t stream, int64_t calls) {
  const double from = Nanoseconds();
  for (int64_t i = 0; i < calls; ++i) driver.AskForCapture(stream);
  return (Nanoseconds() - from) / static_cast<double>(calls);
}

// Nanoseconds, one sample per pair.
struct Result {
  std::vector<double> added;  // without the driver's time
  std::vector<double> direct;
  std::vector<double> query;  // the driver's answer
};

void Append(const Result& more, Result* result) {
  result->added.insert(result->added.end(), more.added.begin(), more.added.end());
  result->direct.insert(result->direct.end(), more.direct.begin(), more.direct.end());
  result->query.insert(result->query.end(), more.query.begin(), more.query.end());
}

struct Sides {
  const Caller& shim;
  const Caller& direct;
  const Driver* driver;  // asked by the shim; nullptr: none is
};

Result Compare(const Sides& sides, const Options& options, double (*run)(const Caller&, int64_t)) {
  run(sides.shim, options.calls);
  run(sides.direct, options.calls);
  Result result;
  for (int64_t pair = 0; pair < options.pairs; ++pair) {
    // The order alternates, so that state left by the first way favours neither.
    double through = 0;
    double without = 0;
    if (pair % 2 == 0) {
      through = run(sides.shim, options.calls);
      without = run(sides.direct, options.calls);
    } else {
      without = run(sides.direct, options.calls);
      through = run(sides.shim, options.calls);
    }
    const double query =
        sides.driver == nullptr ? 0 : Query(*sides.driver, sides.shim.stream, options.calls);
    result.added.push_back(through - without - query);
    result.direct.push_back(without);
    result.query.push_back(query);
  }
  return result;
}

struct Measured {
  Result single;
  Result grouped;
  Counted counted;
};

Measured MeasureHere(const Way& shim, const Way& direct, const Driver& driver, bool in_job,
                     const Options& options) {
  const cudaStream_t stream = driver.MakeStream();
  const Caller through(shim, stream);
  const Caller without(direct, stream);
  Single(through, options.calls);
  Grouped(through, options.calls);
  Measured measured;
  StartCounting();
  Single(through, options.calls);
  Grouped(through, options.calls);
  measured.counted = StopCounting();
  const Sides sides{through, without, in_job && driver.found() ? &driver : nullptr};
  measured.single = Compare(sides, options, Single);
  measured.grouped = Compare(sides, options, Grouped);
  return measured;
}

// Measures on several threads at once.
Measured Measure(int threads, const Way& shim, const Way& direct, const Driver& driver, bool in_job,
                 const Options& options) {
  std::vector<Measured> each(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (Measured& one : each) {
    running.emplace_back([&] { one = MeasureHere(shim, direct, driver, in_job, options); });
  }
  for (std::thread& thread : running) thread.join();
  Measured all;
  for (const Measured& one : each) {
    Append(one.single, &all.single);
    Append(one.grouped, &all.grouped);
    all.counted.allocations += one.counted.allocations;
    all.counted.locks += one.counted.locks;
  }
  return all;
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
  const Spread query = Put("capture_query" + kind + "_ns", result.query, report);
  fprintf(report->text(), "  %-26s %9.2f    %7.2f  %7.2f  %7.2f   %9.2f\n", title.c_str(),
          direct.median, added.p10, added.median, added.p90, query.median);
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
  app.add_option("--threads", options.threads, "threads of the second measurement")
      ->check(CLI::Range(2, 64));
  app.add_option("--report", options.file, "write the JSON object to this file");
  app.add_flag("--json", options.json, "one JSON object on stdout, the text on stderr");
  ParseOrExit(&app, argc, argv);
  if (!PrepareCounting()) Die("libc's locks were not found");
  setenv("REWIRE_NCCL_LIBRARY", REWIRE_NOOP_NCCL, 1);
  const bool in_job = getenv("REWIRE_SOCKET") != nullptr;
  const Driver driver;
  LeaveOut("libcuda.so.1");
  const Way shim = Open(REWIRE_PRELOAD, "nccl");
  const Way direct = Open(REWIRE_NOOP_NCCL, "pnccl");
  if (reinterpret_cast<void*>(shim.all_reduce) == reinterpret_cast<void*>(direct.all_reduce)) {
    Die("both ways are the same function");
  }
  // Making a communicator allocates and locks: this checks that the counters work.
  StartCounting();
  const Caller control(shim, driver.MakeStream());
  const Counted seen = StopCounting();
  if (seen.allocations == 0 || seen.locks == 0) Die("allocations or locks are not seen");

  Report report("shim", options.json);
  report.SetConfig("pairs", options.pairs);
  report.SetConfig("calls", options.calls);
  report.SetConfig("in_group", kInGroup);
  report.SetConfig("threads", options.threads);
  report.SetConfig("in_job", in_job);
  report.SetConfig("driver", driver.found());
  fprintf(report.text(),
          "# ncclAllReduce through the shim against pncclAllReduce, library without work, %s, %s "
          "driver\n"
          "# %lld pairs of %lld calls\n#\n"
          "#                           direct(ns)  added p10   median      p90   driver(ns)\n",
          in_job ? "in a job" : "without an agent", driver.found() ? "with a" : "without a",
          static_cast<long long>(options.pairs), static_cast<long long>(options.calls));
  Counted counted;
  for (const int threads : {1, options.threads}) {
    const Measured measured = Measure(threads, shim, direct, driver, in_job, options);
    const std::string key = threads == 1 ? "" : "_" + std::to_string(threads) + "_threads";
    const std::string on = ", " + std::to_string(threads) + " thread" + (threads == 1 ? "" : "s");
    Put(key, "single" + on, measured.single, &report);
    Put(key + "_in_group", "groups of " + std::to_string(kInGroup) + on, measured.grouped, &report);
    counted.allocations += measured.counted.allocations;
    counted.locks += measured.counted.locks;
  }
  report.Set("allocations", counted.allocations);
  report.Set("locks", counted.locks);
  fprintf(report.text(), "  allocations %llu, locks %llu\n",
          static_cast<unsigned long long>(counted.allocations),
          static_cast<unsigned long long>(counted.locks));
  if (const absl::Status s = report.Finish(options.file); !s.ok()) Die(s.ToString());
  return counted.allocations == 0 && counted.locks == 0 ? 0 : 1;
}

}  // namespace

}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
