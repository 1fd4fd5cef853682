// swap_rank: one process of `./dev bench swap --mode`, an ordinary NCCL program without Rewire
// calls. It runs the threads of its mode (mode_plan.h) until the file "end" exists in the job's
// folder, and writes what it issued and verified. The exit status is a RankStatus of storm/board.h,
// or 2 for wrong arguments or a wrong environment.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

#include "bench/lib/command_line.h"
#include "bench/storm/board.h"
#include "bench/storm/nccl_functions.h"
#include "bench/storm/rank_place.h"
#include "bench/swap/free_memory.h"
#include "bench/swap/mode_lane.h"

namespace rewire::bench {
namespace {

constexpr uint64_t kStepsBetweenVotes = 16;
// The computation between two steps: the builds of the next generations also need processors.
constexpr milliseconds kComputation(1);

struct Args {
  std::string folder;
  std::string mode;
  int64_t patience = 60;
};

// The ranks of this process on one communicator.
class Team {
 public:
  Team(const LanePlan& plan, const std::vector<int>& ranks_here, const CudaDriver* cuda,
       const std::vector<CUcontext>& contexts)
      : plan_(plan) {
    for (size_t in = 0; in < plan.ranks.size(); ++in) {
      const auto here = std::find(ranks_here.begin(), ranks_here.end(), plan.ranks[in]);
      if (here == ranks_here.end()) continue;
      lanes_.push_back(
          std::make_unique<ModeLane>(plan, static_cast<int>(in), cuda,
                                     contexts[static_cast<size_t>(here - ranks_here.begin())]));
    }
  }

  [[nodiscard]] const LanePlan& plan() const { return plan_; }
  [[nodiscard]] const std::vector<std::unique_ptr<ModeLane>>& lanes() const { return lanes_; }

  void Create(const JobFolder& folder) {
    Together([&](ModeLane& lane, bool) { lane.Create(folder); });
    for (const auto& lane : lanes_) lane->Settle();
  }
  void Issue() {
    Together([](ModeLane& lane, bool in_group) { lane.Issue(in_group); });
    for (const auto& lane : lanes_) lane->Fetch();
  }
  [[nodiscard]] int32_t Agree(int32_t value) {
    Together([&](ModeLane& lane, bool) { lane.Vote(value); });
    int32_t agreed = 0;
    for (const auto& lane : lanes_) agreed = lane->Agreed();
    return agreed;
  }
  void Destroy() {
    Together([](ModeLane& lane, bool) { lane.Destroy(); });
  }

 private:
  // One thread that drives several ranks needs a group.
  template <typename Call>
  void Together(Call&& call) {
    const bool group = lanes_.size() > 1;
    if (group && ncclGroupStart() != ncclSuccess) throw LaneFailed("ncclGroupStart failed");
    for (const auto& lane : lanes_) call(*lane, group);
    if (!group) return;
    const ncclResult_t ended = ncclGroupEnd();
    if (ended == ncclSuccess || ended == ncclInProgress) return;
    throw LaneFailed(std::string("ncclGroupEnd: ") + ncclGetErrorString(ended) + ": " +
                     ncclGetLastError(nullptr));
  }

  const LanePlan plan_;
  std::vector<std::unique_ptr<ModeLane>> lanes_;
};

using Teams = std::vector<std::unique_ptr<Team>>;

void RunThread(const Teams& teams, const JobFolder& folder, bool votes, Place* place) {
  for (const auto& team : teams) {
    place->Enter("create", 0, static_cast<int>(team->plan().number));
    team->Create(folder);
  }
  for (uint64_t step = 0;; ++step) {
    std::this_thread::sleep_for(kComputation);
    for (const auto& team : teams) {
      if (team->lanes().empty() || step % team->plan().period != 0) continue;
      place->Enter("operation", step, static_cast<int>(team->plan().number));
      team->Issue();
      const uint64_t life = team->plan().life;
      if (life == 0 || (step / team->plan().period + 1) % life != 0) continue;
      place->Enter("destroy and create", step, static_cast<int>(team->plan().number));
      team->Destroy();
      team->Create(folder);
    }
    if (step % kStepsBetweenVotes != 0) continue;
    place->Enter("vote", step, 0);
    if (teams.front()->Agree(votes && folder.Read() == Word::kEnd ? 1 : 0) != 0) break;
  }
  for (const auto& team : teams) {
    place->Enter("destroy", 0, static_cast<int>(team->plan().number));
    team->Destroy();
  }
  place->End();
}

void WriteResult(const std::string& path, RankStatus status, const std::vector<Teams>& threads) {
  std::ofstream file(path);
  file << "{\"status\": " << status << ", \"lanes\": [";
  const char* separator = "";
  for (const Teams& teams : threads) {
    for (const auto& team : teams) {
      for (const auto& lane : team->lanes()) {
        file << separator << "{\"communicator\": " << team->plan().number
             << ", \"rank\": " << lane->rank() << ", \"made\": " << lane->made()
             << ", \"issued\": " << lane->issued() << ", \"verified\": " << lane->verified()
             << ", \"wrong\": " << lane->wrong() << ", \"times\": [";
        const char* comma = "";
        for (const TimedOperation& each : lane->times()) {
          file << comma << "[\"" << NameOf(each.kind) << "\"," << each.index << "," << each.ns
               << "]";
          comma = ",";
        }
        file << "]}";
        separator = ", ";
      }
    }
  }
  file << "]}\n";
}

int Main(int argc, char** argv) {
  Args args;
  CLI::App app("one process of a swap mode; started by swap.py", "swap_rank");
  app.add_option("--folder", args.folder, "the folder that the processes share")->required();
  app.add_option("--mode", args.mode, "a mode of mode_plan.h")->required();
  app.add_option("--patience", args.patience,
                 "seconds at one place after which a thread counts as hung")
      ->check(CLI::Range(1, 3600));
  ParseOrExit(&app, argc, argv);
  const int process = LaunchNumber("swap_rank", "RANK");
  const int processes = LaunchNumber("swap_rank", "WORLD_SIZE");
  const std::optional<ModePlan> plan = PlanOf(args.mode, processes);
  if (!plan) {
    std::fprintf(stderr, "swap_rank: --mode %s: unknown\n", args.mode.c_str());
    return 2;
  }
  const CudaDriver* cuda = nullptr;
  std::vector<int> ranks_here;
  std::vector<CUcontext> contexts(static_cast<size_t>(plan->ranks_per_process));
  for (CUcontext& context : contexts) {
    const auto here = static_cast<int>(ranks_here.size());
    ranks_here.push_back(process * plan->ranks_per_process + here);
    cuda = OpenDevice("swap_rank", ranks_here.back(), &context);
  }
  const JobFolder folder(args.folder);
  RankStatus status = kDone;
  std::vector<Teams> threads;
  for (const std::vector<LanePlan>& lanes : plan->threads) {
    threads.emplace_back();
    for (const LanePlan& lane : lanes) {
      threads.back().push_back(std::make_unique<Team>(lane, ranks_here, cuda, contexts));
    }
  }
  std::vector<std::unique_ptr<Place>> places;
  for (size_t i = 0; i < threads.size(); ++i) places.push_back(std::make_unique<Place>());
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads.size(); ++i) {
    running.emplace_back([&, i] {
      try {
        RunThread(threads[i], folder, process == 0, places[i].get());
      } catch (const LaneFailed& what) {
        std::fprintf(stderr, "swap_rank: process %d thread %zu: %s\n", process, i, what.what());
        // The other processes and threads need this thread.
        WriteResult(args.folder + "/result." + std::to_string(process), kLost, threads);
        std::_Exit(kLost);
      }
    });
  }
  for (const auto& place : places) {
    while (place->changes() == 0 && !place->ended()) std::this_thread::yield();
  }
  {
    std::optional<FreeMemory> free_memory;
    if (args.mode == "memory") {
      free_memory.emplace(args.folder + "/memory." + std::to_string(process), cuda,
                          contexts.front());
    }
    const Watchdog watchdog(process, &places, seconds(args.patience));
    for (std::thread& thread : running) thread.join();
  }
  for (const Teams& teams : threads) {
    for (const auto& team : teams) {
      for (const auto& lane : team->lanes()) {
        if (lane->wrong() > 0) status = kWrong;
      }
    }
  }
  WriteResult(args.folder + "/result." + std::to_string(process), status, threads);
  return status;
}

}  // namespace
}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
