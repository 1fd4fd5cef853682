// Tests `rewire run` with shell programs, which never call NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/process/agent/job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LauncherTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> Command(const std::vector<std::string>& options,
                                                 const std::string& script) const {
    std::vector<std::string> argv = {REWIRE_COMMAND, "run", "--no-preload", "--dir",
                                     folder_ / "run"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"--", "/bin/sh", "-c", script});
    return argv;
  }
  CommandResult Run(const std::vector<std::string>& options, const std::string& script) {
    Background run(Command(options, script));
    return run.End(seconds(30));
  }
  static std::multiset<std::string> Lines(const std::string& text) {
    std::istringstream in(text);
    std::multiset<std::string> out;
    for (std::string line; std::getline(in, line);) out.insert(line);
    return out;
  }
  TemporaryFolder folder_;
};

TEST_F(LauncherTest, WholeLinesWithTheMembersNumber) {
  const CommandResult r =
      Run({"-n", "3"},
          "i=0; while [ $i -lt 200 ]; do echo \"$RANK line $i\"; i=$((i+1)); done; "
          "echo wrong $RANK >&2; printf 'last %s' $RANK");
  EXPECT_EQ(r.status, 0) << r.err;
  const auto out = Lines(r.out);
  const auto err = Lines(r.err);
  EXPECT_EQ(out.size(), 603u);
  for (const std::string rank : {"0", "1", "2"}) {
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(out.count("[member " + rank + "] " + rank + " line " + std::to_string(i)), 1u);
    }
    EXPECT_EQ(out.count("[member " + rank + "] last " + rank), 1u);
    EXPECT_EQ(err.count("[member " + rank + "] wrong " + rank), 1u);
  }
}

TEST_F(LauncherTest, TorchrunsEnvironment) {
  const CommandResult r = Run({"-n", "2"},
                              "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK "
                              "$MASTER_ADDR $REWIRE_MEMBER; test -S $REWIRE_SOCKET && "
                              "test $MASTER_PORT -gt 0 && echo fine");
  EXPECT_EQ(r.status, 0) << r.err;
  const auto out = Lines(r.out);
  EXPECT_EQ(out.count("[member 0] 0 0 2 2 0 127.0.0.1 0"), 1u) << r.out;
  EXPECT_EQ(out.count("[member 1] 1 1 2 2 0 127.0.0.1 1"), 1u);
  EXPECT_EQ(out.count("[member 0] fine"), 1u);
}

// A member may change its folder.
TEST_F(LauncherTest, RelativeOptionsReachTheMembersAsAbsolutePaths) {
  for (const char* option : {"--dir run --job a", "--dir run --socket here.sock"}) {
    const std::string line = std::string("cd ") + (folder_ / "") +
                             " && exec " REWIRE_COMMAND " run -n 1 --no-preload " + option +
                             " -- sh -c 'cd / && test -S \"$REWIRE_SOCKET\" && echo there'";
    Background run({"/bin/sh", "-c", line});
    const CommandResult r = run.End(seconds(30));
    EXPECT_EQ(r.status, 0) << option << "\n" << r.err;
    EXPECT_THAT(r.out, HasSubstr("there"));
  }
}

TEST_F(LauncherTest, TheStatusOfTheFirstThatFailed) {
  EXPECT_EQ(Run({"-n", "2"}, "exit 0").status, 0);
  // Member 1 fails first: member 0 waits for member 1's flag.
  const std::string flag = folder_ / "flag";
  CommandResult r =
      Run({"-n", "2"}, "if [ $RANK = 1 ]; then trap 'touch " + flag +
                           "' EXIT; exit 7; fi; while [ ! -e " + flag + " ]; do :; done; exit 9");
  EXPECT_THAT(r.err, HasSubstr("rewire: member 1 exited with status 7"));
  EXPECT_TRUE(r.status == 7 || r.status == 9) << r.status;
  r = Run({"-n", "2"}, "[ $RANK = 0 ] || kill -TERM $$");
  EXPECT_EQ(r.status, 128 + SIGTERM);
  EXPECT_THAT(r.err, HasSubstr("member 1 was killed by signal 15"));
}

TEST_F(LauncherTest, EveryProcessHasEndedWhenTheCommandEnds) {
  const CommandResult r = Run({"-n", "2"},
                              "setsid /bin/sh -c 'echo child $$; exec tail -f /dev/null' & "
                              "echo $! > " +
                                  (folder_ / "child-$RANK") + "; exit 3");
  EXPECT_EQ(r.status, 3);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  for (const char* name : {"child-0", "child-1"}) {
    pid_t child = 0;
    std::ifstream(folder_ / name) >> child;
    ASSERT_GT(child, 0);
    EXPECT_FALSE(std::filesystem::exists("/proc/" + std::to_string(child)));
  }
}

TEST_F(LauncherTest, SignalsArePassedOnAndASecondOneKills) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Background run(Command({"-n", "2"},
                           "trap 'echo caught; exit 4' INT TERM; echo ready; "
                           "while :; do tail -f /dev/null & wait $!; done"));
    const auto ready = [](const CommandResult& r) {
      return std::count(r.out.begin(), r.out.end(), '\n') >= 2;
    };
    ASSERT_TRUE(run.ReadUntil(ready, seconds(20)));
    run.Signal(signal);
    const CommandResult r = run.End(seconds(20));
    EXPECT_EQ(r.status, 4);
    EXPECT_THAT(r.out, HasSubstr("[member 0] caught"));
    EXPECT_THAT(r.out, HasSubstr("[member 1] caught"));
  }
  Background stubborn(Command({"-n", "2"},
                              "trap 'echo caught' INT; echo ready; "
                              "while :; do tail -f /dev/null & wait $!; done"));
  const auto count = [](const char* word) {
    return [word](const CommandResult& r) {
      const size_t first = r.out.find(word);
      return first != std::string::npos && r.out.find(word, first + 1) != std::string::npos;
    };
  };
  ASSERT_TRUE(stubborn.ReadUntil(count("ready"), seconds(20)));
  stubborn.Signal(SIGINT);
  ASSERT_TRUE(stubborn.ReadUntil(count("caught"), seconds(20)));
  stubborn.Signal(SIGINT);
  EXPECT_EQ(stubborn.End(seconds(20)).status, 128 + SIGKILL);
}

TEST_F(LauncherTest, AfterTheGraceAMemberIsKilled) {
  Background run(
      Command({"-n", "1", "--grace", "50ms"},
              "trap '' TERM; echo ready; while :; do tail -f /dev/null & wait $!; done"));
  ASSERT_TRUE(run.ReadUntil([](const CommandResult& r) { return !r.out.empty(); }, seconds(20)));
  run.Signal(SIGTERM);
  const CommandResult r = run.End(seconds(20));
  EXPECT_EQ(r.status, 128 + SIGKILL);
  EXPECT_THAT(r.err, HasSubstr("member 0 did not end in time and is killed"));
}

TEST_F(LauncherTest, ADeathBeforeTheFirstWorldEndsTheOthersAfterTheGrace) {
  const CommandResult r =
      Run({"-n", "2", "--grace", "50ms"}, "[ $RANK = 0 ] && exit 3; tail -f /dev/null");
  EXPECT_EQ(r.status, 3);
  EXPECT_THAT(r.err, HasSubstr("the job is over"));
}

TEST_F(LauncherTest, MembersDoNotOutliveAKilledLauncher) {
  Background run(Command({"-n", "1"}, "echo $$; exec tail -f /dev/null"));
  std::string line;
  ASSERT_TRUE(run.ReadUntil(
      [&line](const CommandResult& r) {
        line = r.out;
        return r.out.find('\n') != std::string::npos;
      },
      seconds(20)));
  const std::string pid = line.substr(line.find("] ") + 2, line.find('\n') - line.find("] ") - 2);
  run.Signal(SIGKILL);
  // End() returns after every process, also the member, has closed the pipes.
  EXPECT_EQ(run.End(seconds(20)).status, 128 + SIGKILL);
  const Time deadline = Now() + seconds(20);
  const auto alive = [&pid] {
    std::string text;
    std::getline(std::ifstream("/proc/" + pid + "/stat"), text);
    return !text.empty() && text.find(") Z") == std::string::npos;
  };
  while (alive() && Now() < deadline) {
  }
  EXPECT_FALSE(alive());
}

TEST_F(LauncherTest, ABrokenReaderBreaksTheMembersPipe) {
  // The launcher's reader ends after one line; only a broken pipe ends the member's loop.
  Background run({"/bin/sh", "-c",
                  std::string(REWIRE_COMMAND) + " run -n 1 --no-preload --no-agent -- "
                                                "/bin/sh -c 'while :; do echo y; done' | head -1"});
  const CommandResult r = run.End(seconds(30));
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out, "[member 0] y\n");
}

TEST_F(LauncherTest, StandardInputGoesToMemberZero) {
  Background run({"/bin/sh", "-c",
                  std::string("echo words | ") + REWIRE_COMMAND +
                      " run -n 2 --no-preload --no-agent -- /bin/cat"});
  const CommandResult r = run.End(seconds(30));
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, "[member 0] words\n");
}

TEST_F(LauncherTest, RejectsInvalidOptionsBeforeStart) {
  const struct {
    std::vector<std::string> arguments;
    int status;
    std::string error;
  } wrong[] = {
      {{"run", "-n", "2"}, 2, "no program"},
      {{"run", "-n", "0", "--", "true"}, 2, "--members: Value 0"},
      {{"run", "-n", "x", "--", "true"}, 2, "--members: Value x"},
      {{"run", "-n", "3", "--max", "2", "--", "true"}, 2, "--max 2: must be at least -n 3"},
      {{"run", "--store", "", "--", "true"}, 2, "--store: must not be empty"},
      {{"run", "--job", "", "--", "true"}, 2, "--job: '': must be a file name"},
      {{"status", "--socket", ""}, 2, "--socket: must not be empty"},
      {{"run", "--grace", "soon", "--", "true"}, 2, "'soon': must be a time"},
      {{"run", "--no-preload", "--dir", folder_ / "run", "--", "no-such-program"},
       127,
       "cannot run 'no-such-program': No such file"},
      {{"run", "--no-preload", "--dir", folder_ / "run", "--", "/etc/passwd"},
       126,
       "Permission denied"},
      {{"run", "--no-preload", "--dir", "/proc/none", "--", "true"}, 1, "/proc/none"},
      {{"run", "--no-preload", "--dir", "/proc", "--", "true"}, 1, "No such file"},
      {{"run", "--no-preload", "--dir", folder_ / "run", "--job", "a/b", "--", "true"}, 2, "a/b"},
      {{"run", "--no-preload", "--dir", folder_ / "run", "--trace-dir", "/proc", "--", "true"},
       1,
       "--trace-dir: /proc/rewire-"},
      {{"status", "--dir", folder_ / "nothing"}, 1, "no agent answers there"},
      {{"status", "--socket", folder_ / "nothing"}, 1, "nothing"},
      {{"frobnicate"}, 2, ""},
      {{}, 2, "subcommand"},
      {{"resize", "many"}, 2, "rewire: N: Value many not in range 1 to 100000"},
      {{"resize", "0"}, 2, "N: Value 0"},
      {{"wait", "--for", "epoch"}, 2, "must be steady, or epoch N"},
      {{"drain", "1", "--within", "0"}, 2, "--within"},
  };
  for (const auto& w : wrong) {
    const CommandResult r = Rewire(w.arguments);
    const std::string name = w.arguments.empty() ? "" : w.arguments[0];
    EXPECT_EQ(r.status, w.status) << name << ": " << r.err;
    EXPECT_THAT(r.err, HasSubstr(w.error)) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(LauncherTest, PromisesNoResultOfACommandThatReachedNoAgent) {
  const CommandResult r = Rewire({"resize", "2", "--socket", folder_ / "nothing"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("no agent answers"));
  EXPECT_THAT(r.err, Not(HasSubstr("rewire status")));
}

TEST_F(LauncherTest, SaysWhenStandardOutputCannotBeWritten) {
  Background full({"/bin/sh", "-c", "exec \"$0\" knobs >/dev/full", REWIRE_COMMAND});
  const CommandResult r = full.End(seconds(20));
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("write to standard output: No space left on device"));
}

TEST_F(LauncherTest, AWrongSettingIsRefused) {
  Background run(Command({"-n", "1"}, "echo ran"), {"REWIRE_SILENCE_MS=never"});
  const CommandResult r = run.End(seconds(20));
  EXPECT_EQ(r.status, 2);
  EXPECT_THAT(r.err, HasSubstr("REWIRE_SILENCE_MS=never"));
  EXPECT_THAT(r.out, Not(HasSubstr("ran")));
}

TEST_F(LauncherTest, ADamagedStoreIsRefused) {
  std::ofstream(folder_ / "world") << "this is not a store";
  chmod((folder_ / "world").c_str(), 0600);
  const CommandResult r = Run({"-n", "1", "--store", folder_ / "world"}, "echo ran");
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr((folder_ / "world") + " is corrupt at byte 0"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "world.lock"));
  EXPECT_THAT(r.out, Not(HasSubstr("ran")));
}

TEST_F(LauncherTest, TheOnlyJobIsFoundAndSeveralAreListed) {
  const std::string script = "echo ready; exec tail -f /dev/null";
  const auto ready = [](const CommandResult& r) { return !r.out.empty(); };
  Background first(Command({"--job", "one"}, script));
  ASSERT_TRUE(first.ReadUntil(ready, seconds(20)));
  CommandResult r = Rewire({"status", "--json", "--dir", folder_ / "run"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(nlohmann::json::parse(r.out)["job"], "one");
  r = Rewire({"status", "--json", "--dir", folder_ / "run", "--job", "one"});
  EXPECT_EQ(nlohmann::json::parse(r.out)["job"], "one");
  r = Rewire({"run", "--no-preload", "--dir", folder_ / "run", "--job", "one", "--", "true"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("a job named 'one' runs already"));
  Background second(Command({"--job", "two"}, script));
  ASSERT_TRUE(second.ReadUntil(ready, seconds(20)));
  r = Rewire({"status", "--dir", folder_ / "run"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("run/one/agent.sock " + (folder_ / "run/two/agent.sock")));
  for (Background* job : {&first, &second}) {
    job->Signal(SIGINT);
    job->End(seconds(20));
  }
}

}  // namespace
}  // namespace rewire
