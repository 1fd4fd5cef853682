// Rebuilds, deadlines, destroys and deaths around NCCL programs with all kinds of communicators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr seconds kPatience(60);

size_t Times(const std::string& text, const std::string& what) {
  size_t times = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

class NcclJob {
 public:
  NcclJob(int ranks, const std::string& kinds, std::vector<std::string> environment = {})
      : launcher_(Arguments(folder_, ranks, kinds), Environment(std::move(environment))) {}

  CommandResult Ask(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {"--socket", folder_ / "agent.sock"});
    return Rewire(arguments, kPatience);
  }
  nlohmann::json Status() {
    return nlohmann::json::parse(Ask({"status", "--json"}).out, nullptr, false);
  }
  // Every rank has used each of its communicators.
  bool WaitRunning(size_t ranks) {
    return launcher_.ReadUntil(
        [ranks](const CommandResult& r) { return Times(r.out, "running") == ranks; }, kPatience);
  }
  pid_t PidOf(size_t slot) { return Status()["world"]["members"][slot]["pid"].get<pid_t>(); }
  CommandResult Finish() {
    std::ofstream(folder_ / "stop") << "now";
    return launcher_.End(kPatience);
  }
  CommandResult End() { return launcher_.End(kPatience); }

 private:
  static std::vector<std::string> Arguments(const TemporaryFolder& folder, int ranks,
                                            const std::string& kinds) {
    return {REWIRE_COMMAND, "run",
            "-n",           std::to_string(ranks),
            "--dir",        folder / "run",
            "--socket",     folder / "agent.sock",
            "--",           REWIRE_NCCL_PROGRAM,
            kinds,          folder.path()};
  }
  static std::vector<std::string> Environment(std::vector<std::string> more) {
    more.insert(more.end(),
                {"LD_LIBRARY_PATH=" REWIRE_SIMGPU, "REWIRE_TEST_LIBRARY=" REWIRE_LIBRARY});
    return more;
  }
  TemporaryFolder folder_;
  Background launcher_;
};

// Rebuilds three times under load.
void Rebuild(const std::string& kinds, std::vector<std::string> environment = {}) {
  NcclJob job(2, kinds, std::move(environment));
  ASSERT_TRUE(job.WaitRunning(2));
  for (int i = 0; i < 3; ++i) {
    const CommandResult r = job.Ask({"rebuild"});
    EXPECT_EQ(r.status, 0) << r.out << r.err;
  }
  const CommandResult end = job.Finish();
  EXPECT_EQ(end.status, 0) << end.out << end.err;
  EXPECT_EQ(Times(end.out, "ended "), 2u) << end.out << end.err;
}

TEST(NcclProgramTest, BlockingOnesAreSwapped) { Rebuild("bb"); }
TEST(NcclProgramTest, NonBlockingOnesAreSwapped) { Rebuild("pp"); }
TEST(NcclProgramTest, BothKindsAreSwapped) { Rebuild("bpbp"); }

// The warm operation of an odd rank is launched long after that of the even one: a program whose
// next operation does not wait for the launch deadlocks.
TEST(NcclProgramTest, LateLaunchesDoNotChangeTheOrder) {
  Rebuild("pp", {"SIMNCCL_LATE_LAUNCH_US=200000", "SIMGPU_KERNEL_SLOTS=8"});
}
TEST(NcclProgramTest, OneHardwareQueueSeesOneOrder) {
  Rebuild("ppb", {"SIMNCCL_LATE_LAUNCH_US=50000", "CUDA_DEVICE_MAX_CONNECTIONS=1"});
}

// A stopped member keeps the others' builds in NCCL until the deadline.
TEST(NcclProgramTest, ABuildThatPassesItsDeadlineHarmsNobody) {
  NcclJob job(2, "bp", {"REWIRE_BUILD_MS=300", "REWIRE_SILENCE_MS=60000"});
  ASSERT_TRUE(job.WaitRunning(2));
  int refused = 0;
  for (int i = 0; i < 5; ++i) refused += job.Ask({"rebuild"}).status != 0 ? 1 : 0;
  RecordProperty("refused", refused);
  const CommandResult end = job.Finish();
  EXPECT_EQ(end.status, 0) << end.out << end.err;
  EXPECT_EQ(Times(end.out, "ended "), 2u) << end.out << end.err;
}

TEST(NcclProgramTest, ADestroyDuringARebuildHarmsNobody) {
  NcclJob job(2, "bp");
  ASSERT_TRUE(job.WaitRunning(2));
  Background rebuild({REWIRE_COMMAND, "rebuild", "--socket", job.Status()["agent"]["socket"]});
  const CommandResult end = job.Finish();
  EXPECT_EQ(end.status, 0) << end.out << end.err;
  EXPECT_EQ(Times(end.out, "ended "), 2u) << end.out << end.err;
}

TEST(NcclProgramTest, AProgramMayEndWithOpenCommunicators) {
  NcclJob job(2, "ob");
  ASSERT_TRUE(job.WaitRunning(2));
  const CommandResult end = job.Finish();
  EXPECT_EQ(end.status, 0) << end.out << end.err;
  EXPECT_EQ(Times(end.out, "ended "), 2u) << end.out << end.err;
}

// Each survivor says "lost", and the check knew of every wrong result.
void Kill(const std::string& kinds, bool rebuilding) {
  NcclJob job(3, kinds);
  ASSERT_TRUE(job.WaitRunning(3));
  const pid_t victim = job.PidOf(1);
  std::vector<std::string> command = {REWIRE_COMMAND, "rebuild", "--socket",
                                      job.Status()["agent"]["socket"]};
  if (!rebuilding) command = {"/bin/true"};
  Background rebuild(command);
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  const CommandResult end = job.End();
  EXPECT_EQ(Times(end.out, "lost after"), 2u) << end.out << end.err;
  EXPECT_THAT(end.out, Not(HasSubstr("WRONG")));
  EXPECT_THAT(end.out, Not(HasSubstr("unchecked")));
}

TEST(NcclProgramTest, ADeathUnderLoadIsKnownBeforeTheDataIsUsed) {
  for (const char* kinds : {"b", "bp", "pp"}) Kill(kinds, false);
}
TEST(NcclProgramTest, ADeathDuringARebuildIsSurvivedByTheProcess) {
  for (const char* kinds : {"b", "bp"}) Kill(kinds, true);
}

}  // namespace
}  // namespace rewire
