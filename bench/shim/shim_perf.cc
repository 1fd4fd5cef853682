// What the shim adds to a call: ncclAllReduce through the preloaded library against pncclAllReduce
// of the same library that does nothing, in interleaved pairs of short runs, warm.
//
//   shim_perf [--json] [--pairs N] [--calls N]
//
// Allocations and locks of the measured calls are counted for real (interposed.h).
#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/shim/interposed.h"
#include "rewire_nccl_api.h"

namespace {

using rewire::bench::Counted;

constexpr int kInGroup = 8;

struct Options {
  bool json = false;
  int pairs = 401;
  int calls = 20000;
};

[[noreturn]] void Die(const std::string& why) {
  fprintf(stderr, "shim_perf: %s\n", why.c_str());
  exit(2);
}

int Number(const char* name, const char* text) {
  errno = 0;
  char* end = nullptr;
  const long value = text == nullptr ? 0 : strtol(text, &end, 10);
  if (text == nullptr || errno != 0 || end == text || *end != '\0' || value < 1 ||
      value > 100000000) {
    Die(std::string(name) + " takes a whole number from 1 to 100000000");
  }
  return static_cast<int>(value);
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json") {
      options.json = true;
    } else if (argument == "--pairs") {
      options.pairs = Number("--pairs", argv[++i]);
    } else if (argument == "--calls") {
      options.calls = Number("--calls", argv[++i]);
    } else {
      Die("unknown argument " + argument + "; there are --json, --pairs N, --calls N");
    }
  }
  return options;
}

// One way to NCCL: through the shim or straight.
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

// Per call.
double Single(const Way& way, int calls) {
  const auto from = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    way.all_reduce(nullptr, nullptr, 1024, ncclFloat, ncclSum, way.comm, nullptr);
  }
  return Nanoseconds(from) / calls;
}

// Per operation; the group's start and end are shared by its operations.
double Grouped(const Way& way, int calls) {
  const int groups = std::max(calls / kInGroup, 1);
  const auto from = std::chrono::steady_clock::now();
  for (int g = 0; g < groups; ++g) {
    way.group_start();
    for (int i = 0; i < kInGroup; ++i) {
      way.all_reduce(nullptr, nullptr, 1024, ncclFloat, ncclSum, way.comm, nullptr);
    }
    way.group_end();
  }
  return Nanoseconds(from) / (groups * kInGroup);
}

struct Spread {
  double p10 = 0;
  double median = 0;
  double p90 = 0;
};

Spread Of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
  };
  return {at(0.1), at(0.5), at(0.9)};
}

struct Result {
  Spread added;
  Spread direct;
};

Result Compare(const Way& shim, const Way& direct, const Options& options,
               double (*run)(const Way&, int)) {
  run(shim, options.calls);
  run(direct, options.calls);
  std::vector<double> added;
  std::vector<double> straight;
  for (int pair = 0; pair < options.pairs; ++pair) {
    // The order changes, so that what the first one leaves behind favours neither.
    double through = 0;
    double without = 0;
    if (pair % 2 == 0) {
      through = run(shim, options.calls);
      without = run(direct, options.calls);
    } else {
      without = run(direct, options.calls);
      through = run(shim, options.calls);
    }
    added.push_back(through - without);
    straight.push_back(without);
  }
  return {Of(added), Of(straight)};
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (!rewire::bench::PrepareCounting()) Die("libc's locks were not found");
  setenv("REWIRE_NCCL_LIBRARY", REWIRE_NOOP_NCCL, 1);
  unsetenv("REWIRE_SOCKET");
  unsetenv("REWIRE_DISABLE");
  // Making a communicator allocates and locks: if that is not seen, nothing would be.
  rewire::bench::StartCounting();
  const Way shim = Open(REWIRE_PRELOAD, "nccl");
  const Counted control = rewire::bench::StopCounting();
  if (control.allocations == 0 || control.locks == 0) Die("allocations or locks are not seen");
  const Way direct = Open(REWIRE_NOOP_NCCL, "pnccl");
  if (reinterpret_cast<void*>(shim.all_reduce) == reinterpret_cast<void*>(direct.all_reduce)) {
    Die("both ways are the same function");
  }

  Single(shim, options.calls);
  Grouped(shim, options.calls);
  rewire::bench::StartCounting();
  Single(shim, options.calls);
  Grouped(shim, options.calls);
  const Counted counted = rewire::bench::StopCounting();
  const Result single = Compare(shim, direct, options, Single);
  const Result grouped = Compare(shim, direct, options, Grouped);

  if (options.json) {
    printf(
        "{\"schema\": 1, \"bench\": \"shim\", \"added_ns_median\": %.2f, \"added_ns_p10\": %.2f, "
        "\"added_ns_p90\": %.2f, \"added_in_group_ns_median\": %.2f, "
        "\"added_in_group_ns_p90\": %.2f, \"direct_ns_median\": %.2f, \"allocations\": %llu, "
        "\"locks\": %llu, \"pairs\": %d, \"calls\": %d}\n",
        single.added.median, single.added.p10, single.added.p90, grouped.added.median,
        grouped.added.p90, single.direct.median,
        static_cast<unsigned long long>(counted.allocations),
        static_cast<unsigned long long>(counted.locks), options.pairs, options.calls);
    return 0;
  }
  printf("# ncclAllReduce through the shim against pncclAllReduce, library without work\n");
  printf("# %d pairs of %d calls\n#\n", options.pairs, options.calls);
  printf("#                 direct(ns)  added p10   median      p90\n");
  printf("  single             %7.2f    %7.2f  %7.2f  %7.2f\n", single.direct.median,
         single.added.p10, single.added.median, single.added.p90);
  printf("  in groups of %d     %7.2f    %7.2f  %7.2f  %7.2f\n", kInGroup, grouped.direct.median,
         grouped.added.p10, grouped.added.median, grouped.added.p90);
  printf("  allocations %llu, locks %llu\n", static_cast<unsigned long long>(counted.allocations),
         static_cast<unsigned long long>(counted.locks));
  return 0;
}
