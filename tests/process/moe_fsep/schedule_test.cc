// Fully sharded experts in a toy model of three layers, a process per rank. The results are exact
// and equal with and without the schedule, and in the trace no weights overlap with tokens.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reconfig/base/clock.h"
#include "reconfig/base/socket.h"

namespace rewire::moe::fsep {
namespace {

constexpr int kNodes = 2, kPerNode = 2;
constexpr size_t kBlocks = 3, kTrainingSteps = 3;

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/rewire_fsep_XXXXXX";
    if (mkdtemp(path) != nullptr) path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string Read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(path_ + "/" + name, std::ios::binary).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

pid_t Spawn(int rank, int prefetch, const std::string& slots, const std::string& folder,
            int output) {
  std::vector<std::string> environment = {
      "LD_LIBRARY_PATH=" SIMGPU, "REWIRE_CUDA_LIBRARY=" SIMGPU "/libcuda.so.1",
      "NCCL_HOSTID=node" + std::to_string(rank / kPerNode), "SIMGPU_KERNEL_SLOTS=" + slots};
  for (char** e = environ; *e != nullptr; ++e) {
    // Variables of a sanitizer.
    if (strstr(*e, "SAN_OPTIONS=") != nullptr) environment.emplace_back(*e);
  }
  std::vector<std::string> command = {FSEP_RANK,
                                      std::to_string(rank),
                                      std::to_string(kNodes),
                                      std::to_string(kPerNode),
                                      std::to_string(prefetch),
                                      folder};
  std::vector<char*> envp, argv;
  for (std::string& e : environment) envp.push_back(e.data());
  for (std::string& a : command) argv.push_back(a.data());
  envp.push_back(nullptr), argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, FSEP_RANK, &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

// Runs all ranks to their end; kills them after a minute. Returns true if all exited with 0.
bool RunRanks(int prefetch, const std::string& slots, const std::string& folder) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  UniqueFd reader(ends[0]), writer(ends[1]);
  std::vector<pid_t> pids;
  for (int r = 0; r < kNodes * kPerNode; ++r) {
    pids.push_back(Spawn(r, prefetch, slots, folder, writer.get()));
  }
  writer.reset();
  const Time deadline = Now() + seconds(60);
  std::string output;
  bool late = false;
  for (;;) {
    late = !WaitReady(reader.get(), POLLIN, deadline);
    char chunk[4096];
    const ssize_t n = late ? 0 : read(reader.get(), chunk, sizeof chunk);
    if (n <= 0) break;
    output.append(chunk, static_cast<size_t>(n));
  }
  bool ok = true;
  for (const pid_t pid : pids) {
    int status = -1;
    if (pid > 0) {
      if (late) kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
    }
    ok = ok && status == 0;
  }
  EXPECT_EQ(output, "");
  EXPECT_FALSE(late);
  return ok;
}

struct Span {
  double begin = 0, end = 0;
};

// Returns the spans of a rank's trace whose names begin with `name`, sorted by their start.
std::vector<Span> Spans(const Folder& folder, int rank, const std::string& name) {
  std::vector<Span> spans;
  const auto trace = nlohmann::json::parse(folder.Read(std::to_string(rank) + ".json"));
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || !event.at("name").get<std::string>().starts_with(name)) continue;
    const double begin = event.at("ts");
    spans.push_back({begin, begin + event.at("dur").get<double>()});
  }
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  return spans;
}

// Sums of two doubles differ in their last place.
constexpr double kRounding = 1e-3;

void ExpectApart(const std::vector<Span>& a, const std::vector<Span>& b) {
  for (const Span& x : a) {
    for (const Span& y : b) {
      EXPECT_LE(std::min(x.end, y.end) - std::max(x.begin, y.begin), kRounding);
    }
  }
}

// Checks the promises of reconfig/moe/fsep/schedule.h for one rank.
void CheckTrace(const Folder& folder, int rank, size_t depth) {
  constexpr size_t kVisits = 2 * kBlocks;
  const std::vector<Span> out = Spans(folder, rank, "tokens out");
  const std::vector<Span> back = Spans(folder, rank, "tokens back");
  const std::vector<Span> restores = Spans(folder, rank, "restore");
  const std::vector<Span> experts = Spans(folder, rank, "experts");
  const std::vector<Span> gradients = Spans(folder, rank, "gradients");
  ASSERT_EQ(out.size(), kTrainingSteps * kVisits);
  ASSERT_EQ(back.size(), kTrainingSteps * kVisits);
  ASSERT_EQ(restores.size(), kTrainingSteps * kVisits);
  ASSERT_EQ(experts.size(), kTrainingSteps * kVisits);
  ASSERT_EQ(gradients.size(), kTrainingSteps * kBlocks);
  for (const auto& tokens : {out, back}) {
    ExpectApart(tokens, restores);
    ExpectApart(tokens, gradients);
  }
  for (size_t step = 0; step < kTrainingSteps; ++step) {
    const size_t first = step * kVisits;
    for (size_t v = 0; v < kVisits; ++v) {
      EXPECT_GE(experts[first + v].begin, restores[first + v].end - kRounding);
    }
    for (size_t v = depth; v < kVisits; ++v) {
      EXPECT_GE(restores[first + v].begin, out[first + v - depth].end - kRounding);
      EXPECT_LE(restores[first + v].end, back[first + v - depth].begin + kRounding);
    }
    for (size_t l = 0; l < kBlocks; ++l) {
      const Span& reduced = gradients[step * kBlocks + l];
      const size_t next = first + kBlocks + l + 1;
      if (l + 1 < kBlocks) {
        EXPECT_GE(reduced.begin, out[next].end - kRounding);
        EXPECT_LE(reduced.end, back[next].begin + kRounding);
      } else {
        EXPECT_GE(reduced.begin, back[next - 1].end - kRounding);
      }
    }
  }
}

TEST(FsepScheduleTest, ScheduleChangesOnlyTheTimesOfTransfers) {
  Folder plain;
  ASSERT_TRUE(RunRanks(-1, "0", plain.path()));
  // On devices that run one kernel at a time, a different order of waits on two ranks would
  // deadlock.
  for (const auto& [depth, slots] :
       {std::pair(0, "1"), std::pair(1, "0"), std::pair(2, "1"), std::pair(3, "1")}) {
    SCOPED_TRACE(depth);
    Folder scheduled;
    ASSERT_TRUE(RunRanks(depth, slots, scheduled.path()));
    for (int r = 0; r < kNodes * kPerNode; ++r) {
      const std::string bytes = plain.Read(std::to_string(r) + ".bytes");
      EXPECT_FALSE(bytes.empty());
      EXPECT_EQ(bytes, scheduled.Read(std::to_string(r) + ".bytes"));
      CheckTrace(scheduled, r, static_cast<size_t>(depth));
    }
  }
}

}  // namespace
}  // namespace rewire::moe::fsep
