// Jobs under `rewire run` whose members have other libraries or other processes around the shim:
// allocators, C++ runtimes, children, and launchers of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/fakes/process/sim_libraries.h"
#include "tests/fakes/process/times.h"
#include "tests/process/loading/loaded_program.h"

namespace rewire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr seconds kPatience(60);

class JobTest : public ::testing::Test {
 protected:
  std::unique_ptr<Background> Start(int members, const std::vector<std::string>& command,
                                    const std::vector<std::string>& variables = {}) {
    std::vector<std::string> argv = {REWIRE_COMMAND,
                                     "run",
                                     "-n",
                                     std::to_string(members),
                                     "--sim=" + SimLibraries(REWIRE_SIMGPU),
                                     "--dir",
                                     folder_ / "run",
                                     "--socket",
                                     folder_ / "agent.sock",
                                     "--"};
    argv.insert(argv.end(), command.begin(), command.end());
    return std::make_unique<Background>(argv, variables);
  }
  CommandResult Ask(const std::string& command, const std::string& option = "--timeout=60s") {
    return Rewire({command, "--socket", folder_ / "agent.sock", option}, kPatience);
  }
  // Two members train, are rebuilt, and end well. `check` runs between.
  void ExpectRebuilt(const std::vector<std::string>& variables,
                     const std::function<void(pid_t)>& check = nullptr) {
    const TemporaryFolder shared;
    std::vector<std::string> all = {"NCCL_PROGRAM_LIBRARY=" REWIRE_LIBRARY,
                                    "SIMGPU_MEMORY_MB=32768"};
    all.insert(all.end(), variables.begin(), variables.end());
    const auto job = Start(2, {NCCL_PROGRAM, "bp", shared.path()}, all);
    ASSERT_TRUE(job->ReadUntil([](const CommandResult& r) { return Times(r.out, "running") == 2; },
                               kPatience));
    const CommandResult rebuilt = Ask("rebuild");
    EXPECT_EQ(rebuilt.status, 0) << rebuilt.out << rebuilt.err;
    if (check != nullptr) {
      const auto status = nlohmann::json::parse(Ask("status", "--json").out, nullptr, false);
      check(status["world"]["members"][0]["pid"].get<pid_t>());
    }
    std::ofstream(shared / "stop") << "now";
    const CommandResult end = job->End(kPatience);
    EXPECT_EQ(end.status, 0) << end.out << end.err;
    EXPECT_EQ(Times(end.out, "ended "), 2U) << end.out << end.err;
  }

  const TemporaryFolder folder_;
};

// Returns the path of an installed library, or "" when the loader finds none.
std::string Installed(const std::string& name) {
  for (const char* folder :
       {"/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/", "/usr/lib/"}) {
    if (fs::exists(folder + name)) return folder + name;
  }
  return {};
}

std::string Maps(pid_t process) {
  std::stringstream text;
  text << std::ifstream("/proc/" + std::to_string(process) + "/maps").rdbuf();
  return text.str();
}

TEST_F(JobTest, AllocatorThatAcceptsOnlyItsOwnMemory) {
  ExpectRebuilt({"LD_PRELOAD=" ALLOCATOR},
                [](pid_t member) { EXPECT_THAT(Maps(member), HasSubstr(ALLOCATOR)); });
}

TEST_F(JobTest, InstalledAllocators) {
  int tested = 0;
  for (const char* name : {"libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"}) {
    const std::string allocator = Installed(name);
    if (allocator.empty()) continue;
    ++tested;
    ExpectRebuilt({"LD_PRELOAD=" + allocator}, [&](pid_t member) {
      EXPECT_THAT(Maps(member), HasSubstr(fs::canonical(allocator).string()));
    });
  }
  if (tested == 0) GTEST_SKIP() << "no allocator is installed (Debian's libjemalloc2)";
}

TEST_F(JobTest, OwnCxxRuntimeOnTheLibraryPath) {
  const std::string own = folder_ / "lib";
  fs::create_directories(own);
  fs::copy_file(fs::canonical(CXX_RUNTIME), own + "/libstdc++.so.6");
  ExpectRebuilt({"LD_LIBRARY_PATH=" + own}, [&](pid_t member) {
    EXPECT_THAT(Maps(member), HasSubstr(own + "/libstdc++.so.6"));
  });
}

TEST_F(JobTest, CxxRuntimeThatIsTooOldIsNamed) {
  const CommandResult r = LoadedProgram::Run(
      {("LD_PRELOAD=" REWIRE_PRELOAD),
       "LD_LIBRARY_PATH=" + fs::path(OLD_RUNTIME).parent_path().string(),
       ("REWIRE_NCCL_LIBRARY=" OLD_NCCL), "REWIRE_SOCKET=" + folder_ / "none", "REWIRE_MEMBER=0"},
      {PROBE, "version", "init"});
  EXPECT_THAT(r.out, AllOf(HasSubstr("version 0 21903"), HasSubstr("init 2 0"))) << r.err;
  EXPECT_THAT(r.err,
              AllOf(HasSubstr("the core cannot be loaded"), HasSubstr(OLD_RUNTIME ": version `")));
}

// ---- processes
// -----------------------------------------------------------------------------------

TEST_F(JobTest, ForkedChildCannotUseTheCommunicatorAndHarmsNothing) {
  const CommandResult r =
      Start(1, {CALLER, "1", "open=libnccl.so.2", "child=fork"})->End(kPatience);
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out,
              AllOf(HasSubstr("child status 5"), HasSubstr(" virtual")));  // ncclInvalidUsage
  EXPECT_THAT(r.err, HasSubstr("was made before fork() and cannot be used in the child"));
}

TEST_F(JobTest, MemberMayBeAForkedWorker) {
  const CommandResult r =
      Start(1, {CALLER, "1", "open=libnccl.so.2", "child=worker"})->End(kPatience);
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out, HasSubstr(" virtual"));
}

TEST_F(JobTest, SecondProcessOfAMemberIsRefusedByName) {
  const CommandResult r =
      Start(1, {CALLER, "1", "open=libnccl.so.2", "child=endless"})->End(kPatience);
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("rank 0 sum"), HasSubstr("child status 9")));
  EXPECT_THAT(r.err, AllOf(HasSubstr("member 0 is connected as another process, "),
                           HasSubstr("raise -n of `rewire run`")));
}

TEST_F(JobTest, ChildWithoutAnAgentUsesNccl) {
  const CommandResult r = LoadedProgram::Run(
      {"LD_PRELOAD=" REWIRE_PRELOAD, "LD_LIBRARY_PATH=" + SimLibraries(REWIRE_SIMGPU)},
      {CALLER, "1", "open=libnccl.so.2", "child=exec"});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_THAT(r.out, HasSubstr("child status 0"));
  EXPECT_EQ(Times(r.out, " virtual"), 2U) << r.out;
}

TEST_F(JobTest, DaemonisedProgram) {
  const std::string output = folder_ / "output";
  const CommandResult r = LoadedProgram::Run(
      {"LD_PRELOAD=" REWIRE_PRELOAD, "LD_LIBRARY_PATH=" + SimLibraries(REWIRE_SIMGPU)},
      {"setsid", "--fork", "sh", "-c",
       "exec timeout 60 " CALLER " 2 open=libnccl.so.2 >" + output + " 2>&1"});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  std::string text;
  for (const Time until = Now() + kPatience; Now() < until && Times(text, " virtual") < 2;) {
    std::stringstream read;
    read << std::ifstream(output).rdbuf();
    text = read.str();
    usleep(1000);
  }
  EXPECT_EQ(Times(text, " virtual"), 2U) << text;
}

TEST_F(JobTest, MemberThatBecomesADaemonIsNamed) {
  // The first process ends when its daemon has a session of its own.
  const std::string up = folder_ / "up";
  const std::string script = "setsid sh -c 'echo up >" + up +
                             "; exec tail -f /dev/null >/dev/null' & until [ -s " + up +
                             " ]; do :; done";
  const CommandResult r = Start(1, {"/bin/sh", "-c", script})->End(kPatience);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("a member must not become a daemon): "));
}

TEST_F(JobTest, MemberThatHasNotAttachedIsInTheStatus) {
  const auto job = Start(1, {"/bin/sh", "-c", "echo ready $$; exec tail -f /dev/null"});
  ASSERT_TRUE(
      job->ReadUntil([](const CommandResult& r) { return Times(r.out, "ready") == 1; }, kPatience));
  const auto status = nlohmann::json::parse(Ask("status", "--json").out, nullptr, false);
  ASSERT_EQ(status["unattached"].size(), 1U) << status;
  EXPECT_EQ(status["unattached"][0]["member"], 0);
  const std::string process = std::to_string(status["unattached"][0]["pid"].get<pid_t>());
  EXPECT_THAT(Rewire({"status", "--socket", folder_ / "agent.sock"}).out,
              AllOf(HasSubstr("member 0, process " + process), HasSubstr("docs/limits.md")));
  job->Signal(SIGTERM);
  const CommandResult end = job->End(kPatience);
  EXPECT_THAT(end.out, HasSubstr("ready " + process));
}

}  // namespace
}  // namespace rewire
