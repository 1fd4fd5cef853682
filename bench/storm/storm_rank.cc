// storm_rank: one rank of `./dev bench storm`. It runs a seeded script on several threads, verifies
// every result, and ends when the controller asks for the end or when a peer has died. The exit
// status is a RankStatus, or 2 for wrong arguments or a wrong environment.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "bench/lib/command_line.h"
#include "bench/storm/board.h"
#include "bench/storm/rank_place.h"
#include "bench/storm/worker.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::bench {
namespace {

struct Args {
  std::string folder;
  std::string without;
  int64_t seed = 1, threads = 1, patience = 90;
};

Features FeaturesWithout(const std::string& list) {
  const auto has = [&](const char* name) { return list.find(name) == std::string::npos; };
  Features features;
  features.split = has("split");
  features.shrink = has("shrink");
  features.groups = has("groups");
  features.p2p = has("p2p");
  features.nonblocking = has("nonblocking");
  features.registrations = has("registrations");
  features.windows = has("windows");
  features.idle = has("idle");
  features.abort = has("abort");
  return features;
}

int Main(int argc, char** argv) {
  Args args;
  CLI::App app("one rank of a storm; started by storm.py", "storm_rank");
  app.add_option("--folder", args.folder, "the folder that the ranks share");
  app.add_option("--seed", args.seed, "seed of the script")
      ->check(CLI::Range(int64_t{0}, INT64_MAX));
  app.add_option("--threads", args.threads, "threads, each with its own communicators")
      ->check(CLI::Range(1, 8));
  app.add_option("--patience", args.patience,
                 "seconds at one place after which a thread counts as hung")
      ->check(CLI::Range(1, 3600));
  app.add_option(
      "--without", args.without,
      "parts to leave out, from split,shrink,groups,p2p,nonblocking,registrations,windows,"
      "idle,abort");
  ParseOrExit(&app, argc, argv);

  WorkerOptions options;
  options.rank = LaunchNumber("storm_rank", "RANK");
  options.ranks = LaunchNumber("storm_rank", "WORLD_SIZE");
  options.seed = static_cast<uint64_t>(args.seed);
  options.features = FeaturesWithout(args.without);
  CUcontext context = nullptr;
  const CudaDriver* const cuda = OpenDevice("storm_rank", options.rank, &context);
  const JobFolder folder(args.folder);
  const auto threads = static_cast<size_t>(args.threads);
  std::vector<std::unique_ptr<Place>> places;
  for (size_t i = 0; i < threads; ++i) places.push_back(std::make_unique<Place>());
  std::vector<WorkerResult> results(threads);
  {
    std::vector<std::thread> workers;
    for (size_t i = 0; i < threads; ++i) {
      options.thread = static_cast<int>(i);
      workers.emplace_back([&, options, i] {
        cuda->CtxSetCurrent(context);
        results[i] = Worker(options, cuda, &folder, places[i].get()).Run();
      });
    }
    // The watchdog needs each thread's handle, which is known once the thread has entered its first
    // place.
    for (const auto& place : places) {
      while (place->changes() == 0 && !place->ended()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    const Watchdog watchdog(options.rank, &places, seconds(args.patience));
    for (std::thread& worker : workers) worker.join();
  }
  RankStatus status = kDone;
  uint64_t steps = 0, operations = 0;
  for (const WorkerResult& result : results) {
    steps += result.steps;
    operations += result.operations;
    if (result.status == kDone) continue;
    if (status == kDone || result.status == kWrong) status = result.status;
  }
  std::ofstream(args.folder + "/result." + std::to_string(options.rank))
      << "{\"status\": " << status << ", \"steps\": " << steps << ", \"operations\": " << operations
      << "}\n";
  return status;
}

}  // namespace
}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
