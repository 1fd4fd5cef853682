// Rebuilds, deadlines, destroys and deaths around NCCL programs with all kinds of communicators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "reconfig/base/clock.h"
#include "tests/fakes/process/background.h"
#include "tests/fakes/process/sim_libraries.h"
#include "tests/fakes/process/temporary_folder.h"
#include "tests/fakes/process/times.h"

namespace rewire {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr seconds kPatience(60);

bool HasThread(pid_t process, const std::string& name) {
  std::error_code gone;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, gone)) {
    std::string own;
    std::getline(std::ifstream(task.path() / "comm"), own);
    if (own == name) return true;
  }
  return false;
}

bool WaitUntilGone(pid_t process) {
  const Time until = Now() + kPatience;
  while (kill(process, 0) == 0 && Now() < until) std::this_thread::sleep_for(milliseconds(5));
  return kill(process, 0) != 0;
}

class NcclJob {
 public:
  NcclJob(int ranks, const std::string& kinds, std::vector<std::string> environment = {})
      : launcher_(Arguments(folder_, ranks, kinds), Environment(std::move(environment))) {}

  CommandResult Ask(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {"--socket", Socket()});
    return Rewire(arguments, kPatience);
  }
  nlohmann::json Status() {
    return nlohmann::json::parse(Ask({"status", "--json"}).out, nullptr, false);
  }
  // Waits until every rank has used each of its communicators.
  bool WaitRunning(size_t ranks) {
    return launcher_.ReadUntil(
        [ranks](const CommandResult& r) { return Times(r.out, "running") == ranks; }, kPatience);
  }
  bool WaitForError(const std::string& text) {
    return launcher_.ReadUntil([&text](const CommandResult& r) { return Times(r.err, text) > 0; },
                               kPatience);
  }
  // Begins a rebuild, which does not end while a member is stopped, and waits until the builder of
  // another member runs.
  std::unique_ptr<Background> BeginRebuild(pid_t other) {
    auto rebuild = std::make_unique<Background>(
        std::vector<std::string>{REWIRE_COMMAND, "rebuild", "--socket", Socket()});
    const Time until = Now() + kPatience;
    while (!HasThread(other, "rw-build")) {
      std::this_thread::sleep_for(milliseconds(5));
      if (Now() < until) continue;
      ADD_FAILURE() << "no build runs: " << Status();
      break;
    }
    return rebuild;
  }
  pid_t PidOf(size_t slot) { return Status()["world"]["members"][slot]["pid"].get<pid_t>(); }
  CommandResult Finish() {
    AskToStop();
    return End();
  }
  void AskToLeave(int rank) { std::ofstream(folder_ / ("leave." + std::to_string(rank))) << "now"; }
  void AskToStop() { std::ofstream(folder_ / "stop") << "now"; }
  CommandResult End() { return launcher_.End(kPatience); }
  CommandResult Terminate() {
    launcher_.Signal(SIGTERM);
    return End();
  }

 private:
  std::string Socket() const { return folder_ / "agent.sock"; }
  static std::vector<std::string> Arguments(const TemporaryFolder& folder, int ranks,
                                            const std::string& kinds) {
    return {REWIRE_COMMAND,
            "run",
            "-n",
            std::to_string(ranks),
            "--sim=" + SimLibraries(REWIRE_SIMGPU),
            "--dir",
            folder / "run",
            "--socket",
            folder / "agent.sock",
            "--",
            REWIRE_NCCL_PROGRAM,
            kinds,
            folder.path()};
  }
  static std::vector<std::string> Environment(std::vector<std::string> more) {
    // A communicator of NCCL takes up to half a GiB, and a swap needs the memory twice.
    more.insert(more.end(), {"NCCL_PROGRAM_LIBRARY=" REWIRE_LIBRARY, "SIMGPU_MEMORY_MB=32768"});
    return more;
  }
  TemporaryFolder folder_;
  Background launcher_;
};

void ExpectEnded(const CommandResult& end, size_t ranks) {
  EXPECT_EQ(end.status, 0) << end.out << end.err;
  EXPECT_EQ(Times(end.out, "ended "), ranks) << end.out << end.err;
}

// Rebuilds three times under load.
void Rebuild(const std::string& kinds, std::vector<std::string> environment = {}, int ranks = 2) {
  NcclJob job(ranks, kinds, std::move(environment));
  ASSERT_TRUE(job.WaitRunning(static_cast<size_t>(ranks)));
  for (int i = 0; i < 3; ++i) {
    const CommandResult r = job.Ask({"rebuild"});
    EXPECT_EQ(r.status, 0) << r.out << r.err;
  }
  ExpectEnded(job.Finish(), static_cast<size_t>(ranks));
}

TEST(NcclProgramTest, BlockingOnesAreSwapped) { Rebuild("bb"); }
TEST(NcclProgramTest, NonBlockingOnesAreSwapped) { Rebuild("pp"); }
TEST(NcclProgramTest, BothKindsAreSwapped) { Rebuild("bpbp"); }
TEST(NcclProgramTest, PartialOnesAreSwapped) { Rebuild("bs", {}, 4); }
TEST(NcclProgramTest, IdleOnesWaitForTheirNextOperation) { Rebuild("bsi", {}, 4); }

// An odd rank launches its warm-up operation long after the even rank. A program whose next
// operation does not wait for the launch deadlocks.
TEST(NcclProgramTest, LateLaunchesDoNotChangeTheOrder) {
  Rebuild("pp", {"SIMNCCL_LATE_LAUNCH_US=200000", "SIMGPU_KERNEL_SLOTS=8"});
}
TEST(NcclProgramTest, OneHardwareQueueSeesOneOrder) {
  Rebuild("ppb", {"SIMNCCL_LATE_LAUNCH_US=50000", "CUDA_DEVICE_MAX_CONNECTIONS=1"});
}

// A stopped member keeps the other's builds in NCCL until the deadline.
TEST(NcclProgramTest, LateBuildDoesNotHarmProgram) {
  NcclJob job(2, "bp", {"REWIRE_BUILD_MS=10000", "REWIRE_SILENCE_MS=60000"});
  ASSERT_TRUE(job.WaitRunning(2));
  const pid_t stopped = job.PidOf(1);
  ASSERT_EQ(kill(stopped, SIGSTOP), 0);
  const CommandResult refused = job.Ask({"rebuild"});
  ASSERT_EQ(kill(stopped, SIGCONT), 0);
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, AnyOf(HasSubstr("in time"), HasSubstr("REWIRE_BUILD_MS")));
  const CommandResult again = job.Ask({"rebuild"});
  EXPECT_EQ(again.status, 0) << again.out << again.err;
  ExpectEnded(job.Finish(), 2);
}

// NCCL has a thread and a listening socket for each unique id until all ranks have connected.
TEST(NcclProgramTest, ARefusedBuildLeavesNoThreadOfNcclBehind) {
  if (std::getenv("NCCL_HOST_LIBRARIES") == nullptr) GTEST_SKIP() << "needs NCCL's host code";
  NcclJob job(2, "bp",
              {"REWIRE_BUILD_MS=2000", "REWIRE_SILENCE_MS=60000", "NCCL_SET_THREAD_NAME=1"});
  ASSERT_TRUE(job.WaitRunning(2));
  const pid_t minter = job.PidOf(0);
  const pid_t stopped = job.PidOf(1);
  ASSERT_EQ(kill(stopped, SIGSTOP), 0);
  EXPECT_NE(job.Ask({"rebuild"}).status, 0);
  EXPECT_TRUE(HasThread(minter, "NCCL BootstrapR"));
  ASSERT_EQ(kill(stopped, SIGCONT), 0);
  const Time until = Now() + kPatience;
  while (HasThread(minter, "NCCL BootstrapR") && Now() < until) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_FALSE(HasThread(minter, "NCCL BootstrapR"));
  ExpectEnded(job.Finish(), 2);
}

// The test stops the last rank, which blocks its half of the split. The other half destroys its
// communicators while they are rebuilt.
TEST(NcclProgramTest, DestroyDuringRebuildDoesNotHarmProgram) {
  for (const char* kinds : {"is", "iqs"}) {
    NcclJob job(4, kinds, {"REWIRE_SILENCE_MS=60000", "REWIRE_LOG=info"});
    ASSERT_TRUE(job.WaitRunning(4));
    const pid_t stopped = job.PidOf(3);
    ASSERT_EQ(kill(stopped, SIGSTOP), 0);
    const auto rebuild = job.BeginRebuild(job.PidOf(0));
    job.AskToStop();
    // A peer's end may fail a build before the answer to the destroy cancels it.
    EXPECT_TRUE(job.WaitForError("build of epoch "));
    ASSERT_EQ(kill(stopped, SIGCONT), 0);
    const CommandResult end = job.End();
    ExpectEnded(end, 4);
    // The leader's answer to the destroy may reach the builder before the destroy itself.
    EXPECT_THAT(end.err, AnyOf(HasSubstr("was destroyed by the program"),
                               HasSubstr("the transition to epoch")));
    const CommandResult refused = rebuild->End(kPatience);
    EXPECT_NE(refused.status, 0);
    EXPECT_NE(refused.err, "");
  }
}

TEST(NcclProgramTest, AProgramMayEndWithOpenCommunicators) {
  NcclJob job(2, "ob");
  ASSERT_TRUE(job.WaitRunning(2));
  const CommandResult end = job.Finish();
  ExpectEnded(end, 2);
  EXPECT_THAT(end.err, Not(HasSubstr("lost")));
}

// The exit destroys the CUDA runtime. No thread of Rewire may be inside NCCL then, or enter it.
TEST(NcclProgramTest, AProgramMayEndDuringARebuild) {
  for (const char* kinds : {"is", "iqs"}) {
    NcclJob job(4, kinds, {"REWIRE_SILENCE_MS=60000"});
    ASSERT_TRUE(job.WaitRunning(4));
    const pid_t stopped = job.PidOf(3);
    const pid_t leaves = job.PidOf(0);
    ASSERT_EQ(kill(stopped, SIGSTOP), 0);
    const auto rebuild = job.BeginRebuild(leaves);
    job.AskToLeave(0);
    EXPECT_TRUE(WaitUntilGone(leaves));
    ASSERT_EQ(kill(stopped, SIGCONT), 0);
    const CommandResult end = job.Terminate();
    EXPECT_THAT(end.err, Not(HasSubstr("member 0 was killed")));
    // The ending process may have no time for a word of its own.
    EXPECT_THAT(end.err, HasSubstr("PREPARE: aborted"));
    EXPECT_THAT(end.err, Not(HasSubstr("are still inside NCCL")));
  }
}

TEST(NcclProgramTest, AMemberThatEndsBeforeTheOthersIsLostToThem) {
  NcclJob job(2, "ob", {"REWIRE_SILENCE_MS=1000"});
  ASSERT_TRUE(job.WaitRunning(2));
  job.AskToLeave(1);
  const CommandResult end = job.End();
  EXPECT_EQ(Times(end.out, "lost after"), 1U) << end.out << end.err;
  EXPECT_THAT(end.err, HasSubstr("member 1 is lost: its program ended with status 0, and others "
                                 "went on for REWIRE_SILENCE_MS"));
}

// Each survivor prints "lost" before its _exit(); a signal would end it without this line.
void ExpectLost(const CommandResult& end) {
  EXPECT_EQ(Times(end.out, "lost after"), 2u) << end.out << end.err;
}
// The check reported every wrong result. NCCL's own call may give the error first.
void ExpectChecked(const CommandResult& end) { EXPECT_THAT(end.out, Not(HasSubstr("WRONG"))); }

TEST(NcclProgramTest, ADeathUnderLoadIsKnownBeforeTheDataIsUsed) {
  for (const char* kinds : {"b", "bp", "pp", "bs"}) {
    NcclJob job(3, kinds);
    ASSERT_TRUE(job.WaitRunning(3));
    ASSERT_EQ(kill(job.PidOf(1), SIGKILL), 0);
    const CommandResult end = job.End();
    ExpectLost(end);
    EXPECT_THAT(end.err, ContainsRegex("\\[member [02], epoch 1\\] REWIRE WARN lost: member 1"));
    ExpectChecked(end);
  }
}

// The last rank is stopped, so that the others are inside a build when one of them dies.
TEST(NcclProgramTest, ADeathDuringARebuildIsSurvivedByTheProcess) {
  for (const char* kinds : {"b", "bp", "bs"}) {
    NcclJob job(3, kinds, {"REWIRE_SILENCE_MS=60000"});
    ASSERT_TRUE(job.WaitRunning(3));
    const pid_t victim = job.PidOf(1);
    const pid_t stopped = job.PidOf(2);
    ASSERT_EQ(kill(stopped, SIGSTOP), 0);
    const auto rebuild = job.BeginRebuild(job.PidOf(0));
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    ASSERT_EQ(kill(stopped, SIGCONT), 0);
    const CommandResult end = job.End();
    ExpectLost(end);
    ExpectChecked(end);
    const CommandResult refused = rebuild->End(kPatience);
    EXPECT_NE(refused.status, 0);
    EXPECT_NE(refused.err, "");
  }
}

// Rank 0 makes the unique ids, for which the others wait.
TEST(NcclProgramTest, ADeathDuringACreationIsSurvivedByTheProcess) {
  for (int i = 0; i < 10; ++i) {
    NcclJob job(3, "create", {"REWIRE_BUILD_MS=3000"});
    ASSERT_TRUE(job.WaitRunning(3));
    const pid_t victim = job.PidOf(i % 2);
    std::this_thread::sleep_for(milliseconds(41 * i));  // at another point of the creation
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    ExpectLost(job.End());
  }
}

}  // namespace
}  // namespace rewire
