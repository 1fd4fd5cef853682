// loss_rank: one rank of `./dev bench loss`, an ordinary NCCL program without Rewire calls. It runs
// the lanes of its seed, and writes when and how each lane ended. The exit status is a RankStatus
// of storm/board.h, or 2 for wrong arguments or a wrong environment.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/lib/command_line.h"
#include "bench/loss/lane.h"
#include "bench/storm/rank_place.h"

namespace rewire::bench {
namespace {

struct Arguments {
  std::string folder;
  int64_t seed = 1, patience = 100;
};

void WriteResult(const std::string& folder, int rank,
                 const std::vector<std::unique_ptr<Lane>>& lanes) {
  const std::string path = folder + "/result." + std::to_string(rank);
  {
    std::ofstream file(path + ".new");
    for (const auto& lane : lanes) {
      file << "{\"plan\": \"" << lane->plan().Text() << "\", \"lane\": " << lane->plan().number
           << ", \"record\": " << lane->record().Text() << "}\n";
    }
    file.close();
    if (!file) {
      std::fprintf(stderr, "loss_rank: write %s.new: failed\n", path.c_str());
      std::exit(kUnexpected);
    }
  }
  std::filesystem::rename(path + ".new", path);
}

int RunRank(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("one rank of the loss benchmark; started by loss.py", "loss_rank");
  app.add_option("--folder", arguments.folder, "the folder that the ranks share");
  app.add_option("--seed", arguments.seed, "seed of the lanes")
      ->check(CLI::Range(int64_t{0}, INT64_MAX));
  app.add_option("--patience", arguments.patience,
                 "seconds at one place after which a thread counts as hung")
      ->check(CLI::Range(1, 3600));
  ParseOrExit(&app, argc, argv);

  const int rank = LaunchNumber("loss_rank", "RANK");
  const int ranks = LaunchNumber("loss_rank", "WORLD_SIZE");
  const auto seed = static_cast<uint64_t>(arguments.seed);
  FaultPage page(arguments.folder + "/page");
  page.SetPid(rank, ::getpid());
  CUcontext context = nullptr;
  const CudaDriver* const cuda = OpenDevice("loss_rank", rank, &context);
  const JobFolder folder(arguments.folder);

  std::vector<std::unique_ptr<Place>> places;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::atomic<size_t> not_running{0};
  std::atomic<bool> failed{false};
  for (const LanePlan& plan : DrawLanes(seed, ranks)) {
    if (plan.RankOf(rank) < 0) continue;
    places.push_back(std::make_unique<Place>());
    ++not_running;
    lanes.push_back(std::make_unique<Lane>(
        plan, rank, seed, cuda, &folder, &page, places.back().get(),
        [&page, &not_running, rank] {
          if (--not_running == 0) page.SetStage(rank, Stage::kRunning);
        },
        &failed));
  }
  page.SetStage(rank, Stage::kCreating);
  {
    std::vector<std::thread> threads;
    for (const auto& lane : lanes) {
      threads.emplace_back([cuda, context, lane = lane.get()] {
        cuda->CtxSetCurrent(context);
        lane->Run();
      });
    }
    const Watchdog watchdog(rank, &places, seconds(arguments.patience));
    for (std::thread& thread : threads) thread.join();
  }
  page.SetStage(rank, Stage::kEnded);
  WriteResult(arguments.folder, rank, lanes);
  return failed.load() ? kLost : kDone;
}

}  // namespace
}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::RunRank(argc, argv); }
