#include "tests/process/job/training_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/fakes/process/sim_libraries.h"

namespace rewire {
namespace {

namespace fs = std::filesystem;

constexpr int kMost = 8;  // largest number of member ids in a test
constexpr Duration kPatience = seconds(30);

std::vector<std::string> Training(int zero) {
  return {GPT_TRAIN, "--exact",           "--width", "16",      "--layers", "1",         "--heads",
          "2",       "--steps",           "100000",  "--batch", "4",        "--context", "16",
          "--zero",  std::to_string(zero)};
}

std::vector<std::string> RunArguments(const TrainingOptions& o, const TemporaryFolder& folder) {
  std::vector<std::string> argv = {REWIRE_COMMAND,
                                   "run",
                                   "--sim=" + SimLibraries(SIMGPU),
                                   "-n",
                                   std::to_string(o.members),
                                   "--max",
                                   std::to_string(o.max),
                                   "--dir",
                                   folder / "run",
                                   "--socket",
                                   folder / "agent.sock",
                                   "--store",
                                   folder / "world",
                                   "--"};
  argv.emplace_back("/usr/bin/env");
  argv.insert(argv.end(), o.environment.begin(), o.environment.end());
  if (o.net_plugin) {
    // NCCL uses the network inside a host only if no other transport is allowed.
    argv.insert(argv.end(), {"NCCL_NET_PLUGIN=rewire", "NCCL_NET=rewire", "NCCL_P2P_DISABLE=1",
                             "NCCL_SHM_DISABLE=1", "NCCL_SOCKET_IFNAME=lo", "REWIRE_LOG=info"});
  }
  const std::vector<std::string> program = Training(o.zero);
  argv.insert(argv.end(), program.begin(), program.end());
  argv.insert(argv.end(),
              {"--stop-file", folder / "stop", "--log", folder / "steps.{member}.jsonl"});
  return argv;
}

// Returns the newest step in a log; -1: none.
int LastStepIn(const std::string& path) {
  std::ifstream in(path);
  int last = -1;
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find("{\"kind\":\"step\",\"step\":");
    if (at == 0) last = std::stoi(line.substr(22));
  }
  return last;
}

}  // namespace

bool Eventually(const std::function<bool()>& condition) {
  const Time deadline = Now() + kPatience;
  while (!condition()) {
    if (Now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

std::string FinalLine(const std::string& output) {
  const size_t at = output.rfind("final step");
  return at == std::string::npos ? "" : output.substr(at, output.find('\n', at) - at);
}

std::vector<std::string> ListeningAddresses(pid_t pid) {
  std::set<std::string> inodes;
  std::error_code ignored;
  for (const auto& fd : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored)) {
    const std::string target = fs::read_symlink(fd.path(), ignored).string();
    if (target.rfind("socket:[", 0) == 0) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::vector<std::string> out;
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
        timeout >> inode;
    if (state != "0A" || inodes.count(inode) == 0) continue;
    const int port = std::stoi(local.substr(local.find(':') + 1), nullptr, 16);
    out.push_back("127.0.0.1:" + std::to_string(port));
  }
  return out;
}

bool Ended(pid_t pid) {
  // The code uses getline() instead of an iterator. If a process ends between open and read, the
  // read fails, and the iterator throws.
  std::string text;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), text);
  return text.empty() || text.find(") Z") != std::string::npos;
}

TrainingJob::TrainingJob(const TrainingOptions& options)
    : options_(options), launcher_(RunArguments(options, folder_)) {
  const bool formed = Eventually([&] {
    for (int m = 0; m < options_.members; ++m) {
      if (LastStepIn(folder_ / ("steps." + std::to_string(m) + ".jsonl")) < 0) return false;
    }
    return true;
  });
  EXPECT_TRUE(formed) << launcher_.End(seconds(1)).err;
}

TrainingJob::~TrainingJob() {
  if (!::testing::Test::HasFailure()) return;
  launcher_.Signal(SIGTERM);
  const CommandResult end = launcher_.End(seconds(5));
  std::cerr << end.out << "status " << end.status << "\n" << end.err;
}

CommandResult TrainingJob::Ask(const std::string& command, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {command, "--socket", socket()});
  return Rewire(arguments, seconds(60));
}

Background TrainingJob::Begin(const std::string& command, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {REWIRE_COMMAND, command, "--socket", socket()});
  return Background(arguments);
}

nlohmann::json TrainingJob::Status() {
  const CommandResult r = Ask("status", {"--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  return nlohmann::json::parse(r.out, nullptr, false);
}

std::vector<int> TrainingJob::World() {
  std::vector<int> out;
  const nlohmann::json status = Status();
  for (const auto& m : status["world"]["members"]) out.push_back(m["member"].get<int>());
  return out;
}

pid_t TrainingJob::PidOfSlot(size_t slot) {
  return Status()["world"]["members"][slot]["pid"].get<pid_t>();
}

pid_t TrainingJob::AgentPid() { return Status()["agent"]["pid"].get<pid_t>(); }

void TrainingJob::WaitSteady(int epoch) {
  const CommandResult r =
      Ask("wait", {"--for", "epoch=" + std::to_string(epoch), "--timeout", "30s"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(Ask("wait", {"--timeout", "30s"}).status, 0);
}

int TrainingJob::LastStep() const {
  int last = -1;
  for (int m = 0; m < kMost; ++m) {
    last = std::max(last, LastStepIn(folder_ / ("steps." + std::to_string(m) + ".jsonl")));
  }
  return last;
}

void TrainingJob::Train(int more) {
  const int until = LastStep() + more;
  EXPECT_TRUE(Eventually([&] { return LastStep() >= until; })) << "the job does not train";
}

CommandResult TrainingJob::FinishExact() {
  std::ofstream(folder_ / "stop") << "now";
  CommandResult end = launcher_.End(seconds(40));
  EXPECT_EQ(end.status, 0) << end.err;
  const std::string final = FinalLine(end.out);
  EXPECT_THAT(final, ::testing::StartsWith("final step ")) << end.out << end.err;
  if (final.empty()) return end;
  std::vector<std::string> reference = {"/usr/bin/env", "LD_LIBRARY_PATH=" + SimLibraries(SIMGPU)};
  const std::vector<std::string> program = Training(options_.zero);
  reference.insert(reference.end(), program.begin(), program.end());
  reference.insert(reference.end(), {"--stop-after", std::to_string(std::stoi(final.substr(11)))});
  const CommandResult undisturbed = Background(reference).End(kPatience);
  EXPECT_EQ(final, FinalLine(undisturbed.out)) << undisturbed.err;
  return end;
}

}  // namespace rewire
