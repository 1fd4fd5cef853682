// After SIGKILL of combinations of guard, launcher, agent and members, no process and no folder of
// the job is left. Members start children, also in separate sessions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/process/agent/job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

constexpr Duration kPatience = seconds(30);

std::string Contents(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

// Returns the processes whose command line or environment names the folder; a zombie has neither.
std::vector<pid_t> ProcessesOf(const std::string& folder) {
  std::vector<pid_t> out;
  for (const fs::directory_entry& p : fs::directory_iterator("/proc")) {
    const pid_t pid = atoi(p.path().filename().c_str());
    if (pid <= 0 || pid == getpid()) continue;
    if ((Contents(p.path() / "cmdline") + Contents(p.path() / "environ")).find(folder) !=
        std::string::npos) {
      out.push_back(pid);
    }
  }
  return out;
}

pid_t ParentOf(pid_t pid) {
  const std::string stat = Contents("/proc/" + std::to_string(pid) + "/stat");
  return atoi(stat.c_str() + stat.rfind(") ") + 4);
}

bool Eventually(const std::function<bool()>& condition) {
  const Time deadline = Now() + kPatience;
  while (!condition()) {
    if (Now() >= deadline) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

// Runs two members, each with a child in its group and an orphaned child in a separate session.
class KilledJob {
 public:
  explicit KilledJob(const TemporaryFolder& folder)
      : folder_(folder),
        run_({REWIRE_COMMAND, "run", "-n", "2", "--no-preload", "--grace", "10s", "--dir",
              folder / "run", "--job", "j", "--", "/bin/sh", "-c",
              "cd " + folder.path() +
                  "; sh -c 'echo $$ > group-$RANK.tmp; mv group-$RANK.tmp group-$RANK; "
                  "exec tail -f /dev/null' & "
                  "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > alone-$RANK.tmp; "
                  "mv alone-$RANK.tmp alone-$RANK; while :; do tail -f /dev/null; done' &) ; "
                  "echo $$ > member-$RANK.tmp; mv member-$RANK.tmp member-$RANK; wait"}) {}

  // Waits until every process of the job has started. False: timeout.
  bool Started() {
    return Eventually([this] {
      for (const char* name :
           {"group-0", "group-1", "alone-0", "alone-1", "member-0", "member-1"}) {
        if (!fs::exists(folder_ / name)) return false;
      }
      return Agent() != 0;
    });
  }
  [[nodiscard]] pid_t Guard() const { return run_.pid(); }
  pid_t Agent() {
    const CommandResult r =
        Rewire({"status", "--json", "--socket", folder_ / "run/j/agent.sock"}, seconds(10));
    if (r.status != 0) return 0;
    return nlohmann::json::parse(r.out)["agent"]["pid"].get<pid_t>();
  }
  pid_t Launcher() { return ParentOf(Agent()); }
  std::vector<pid_t> Members() {
    return {atoi(Contents(folder_ / "member-0").c_str()),
            atoi(Contents(folder_ / "member-1").c_str())};
  }
  Background& run() { return run_; }

 private:
  const TemporaryFolder& folder_;
  Background run_;
};

enum : int { kGuard = 1, kLauncher = 2, kAgent = 4, kMembers = 8 };

class KillTest : public ::testing::TestWithParam<int> {
 protected:
  TemporaryFolder folder_;
};

TEST_P(KillTest, NoProcessAndNoFolderIsLeft) {
  KilledJob job(folder_);
  ASSERT_TRUE(job.Started());
  ASSERT_EQ(ParentOf(job.Launcher()), job.Guard());
  std::vector<pid_t> victims;
  if ((GetParam() & kMembers) != 0) victims = job.Members();
  const pid_t agent = job.Agent();
  if ((GetParam() & kAgent) != 0) victims.push_back(agent);
  if ((GetParam() & kLauncher) != 0) victims.push_back(ParentOf(agent));
  if ((GetParam() & kGuard) != 0) victims.push_back(job.Guard());
  for (const pid_t victim : victims) kill(victim, SIGKILL);
  if ((GetParam() & (kGuard | kLauncher | kMembers)) == 0) {
    // The job goes on with another agent.
    EXPECT_TRUE(Eventually([&] {
      const pid_t next = job.Agent();
      return next != 0 && next != agent;
    }));
    EXPECT_EQ(ProcessesOf(folder_.path()).size(), 3u + 2u * 4u);
    job.run().Signal(SIGTERM);
  }
  const int status = job.run().End(kPatience).status;
  EXPECT_EQ(status, 128 + ((GetParam() & ~kAgent) == 0 ? SIGTERM : SIGKILL));
  // If the guard was not killed, no process is left when the command has ended.
  if ((GetParam() & kGuard) == 0) {
    EXPECT_THAT(ProcessesOf(folder_.path()), IsEmpty());
  }
  EXPECT_TRUE(Eventually([&] {
    return ProcessesOf(folder_.path()).empty() && !fs::exists(folder_ / "run");
  })) << ::testing::PrintToString(ProcessesOf(folder_.path()));
}

std::string Name(const ::testing::TestParamInfo<int>& info) {
  std::string name;
  if ((info.param & kGuard) != 0) name += "Guard";
  if ((info.param & kLauncher) != 0) name += "Launcher";
  if ((info.param & kAgent) != 0) name += "Agent";
  if ((info.param & kMembers) != 0) name += "Members";
  return name;
}

INSTANTIATE_TEST_SUITE_P(Killed, KillTest,
                         ::testing::Values(kGuard, kLauncher, kAgent, kMembers, kGuard | kAgent,
                                           kGuard | kMembers, kLauncher | kAgent,
                                           kLauncher | kMembers, kAgent | kMembers,
                                           kGuard | kAgent | kMembers,
                                           kLauncher | kAgent | kMembers),
                         Name);

class JobNameTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> Command(const std::string& name, const std::string& socket,
                                                 const std::string& script) const {
    return {REWIRE_COMMAND, "run", "--no-preload", "--dir",          folder_ / "run",
            "--job",        name,  "--socket",     folder_ / socket, "--",
            "/bin/sh",      "-c",  script};
  }
  static bool Ready(Background* job) {
    return job->ReadUntil([](const CommandResult& r) { return !r.out.empty(); }, kPatience);
  }
  TemporaryFolder folder_;
};

TEST_F(JobNameTest, ASecondJobOfOneNameIsRefusedWhateverItsSocket) {
  Background first(Command("one", "a.sock", "echo ready; exec tail -f /dev/null"));
  ASSERT_TRUE(Ready(&first));
  const std::string secret = Contents(folder_ / "run/one/world.secret");
  Background second(Command("one", "b.sock", "echo ran"));
  const CommandResult refused = second.End(kPatience);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("a job named 'one' runs already"));
  EXPECT_THAT(refused.out, IsEmpty());
  EXPECT_EQ(Contents(folder_ / "run/one/world.secret"), secret);
  EXPECT_EQ(Rewire({"status", "--socket", folder_ / "a.sock"}).status, 0);
  first.Signal(SIGTERM);
  first.End(kPatience);
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(JobNameTest, TheNextJobRemovesTheFolderOfOneWhoseProcessesWereAllKilled) {
  for (const char* next : {"one", "two"}) {
    Background first(Command("one", "a.sock", "echo ready; exec tail -f /dev/null"));
    ASSERT_TRUE(Ready(&first));
    const CommandResult status = Rewire({"status", "--json", "--socket", folder_ / "a.sock"});
    const auto agent = nlohmann::json::parse(status.out)["agent"]["pid"].get<pid_t>();
    const pid_t launcher = ParentOf(agent);
    kill(launcher, SIGSTOP);  // the launcher must not notice the guard's death
    kill(first.pid(), SIGKILL);
    kill(launcher, SIGKILL);
    first.End(kPatience);
    ASSERT_TRUE(Eventually([&] { return ProcessesOf(folder_.path()).empty(); }));
    ASSERT_TRUE(fs::exists(folder_ / "run/one/world.secret"));
    Background second(Command(next, "b.sock", "ls -A " + (folder_ / "run")));
    const CommandResult r = second.End(kPatience);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, std::string("[member 0] ") + next + "\n");
    fs::remove_all(folder_ / "run");
  }
}

}  // namespace
}  // namespace rewire
