// Invalid input to a training job: each error is named, and the job continues to train unaffected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "reconfig/base/socket.h"
#include "tests/process/job/training_job.h"

namespace rewire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(BadInputTest, AWrongSettingIsNamedWithItsRangeBeforeAnythingStarts) {
  const struct {
    std::string line;
    std::string allowed;
  } wrong[] = {{"REWIRE_SILENCE_MS=never", "from 50 to 600000"},
               {"REWIRE_BUDGET_MB=0", "from 1 to 1048576"},
               {"REWIRE_BUDDY=on", "from 0 to 1"},
               {"REWIRE_CUT_MARGIN=100001", "from 1 to 100000"}};
  for (const auto& w : wrong) {
    TemporaryFolder folder;
    // The wrong setting is given first to the launcher, then to the members alone.
    const CommandResult launcher =
        Background({"/usr/bin/env", w.line, REWIRE_COMMAND, "run", "--sim", "--dir", folder / "run",
                    "--", GPT_TRAIN, "--steps", "1"})
            .End(seconds(30));
    EXPECT_EQ(launcher.status, 2) << w.line;
    EXPECT_THAT(launcher.err, AllOf(HasSubstr(w.line), HasSubstr(w.allowed)));
    const CommandResult member =
        Background({REWIRE_COMMAND, "run", "--sim", "--dir", folder / "run", "--", "/usr/bin/env",
                    w.line, GPT_TRAIN, "--steps", "1"})
            .End(seconds(30));
    EXPECT_EQ(member.status, 1) << w.line;
    EXPECT_THAT(member.err, AllOf(HasSubstr(w.line), HasSubstr(w.allowed)));
    EXPECT_THAT(member.out, Not(HasSubstr("final step")));
  }
}

TEST(BadInputTest, MissingLibrariesOfTheSimulationAreNamed) {
  const CommandResult r = Rewire({"run", "--sim=/nowhere", "--", "/bin/true"});
  EXPECT_EQ(r.status, 2);
  EXPECT_THAT(r.err, HasSubstr("--sim: /nowhere/libnccl.so.2: not a readable file"));
}

TEST(BadInputTest, TorchAutoWithoutAScript) {
  for (const std::vector<std::string>& program : {std::vector<std::string>{"/bin/true"},
                                                  {"python3", "-m", "package", "x.py"},
                                                  {"sh", "x.py"}}) {
    std::vector<std::string> command = {"run", "--torch-auto", "--"};
    command.insert(command.end(), program.begin(), program.end());
    const CommandResult r = Rewire(command);
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, HasSubstr("--torch-auto: needs `python SCRIPT.py"));
  }
  const CommandResult r = Rewire({"run", "--torch-auto", "--no-agent", "--", "python3", "x.py"});
  EXPECT_THAT(r.err, HasSubstr("--torch-auto: the world of a job without an agent"));
}

TEST(BadInputTest, AMemberThatEndsWellBeforeItAttachesIsNamed) {
  TemporaryFolder folder;
  Background run({REWIRE_COMMAND, "run", "--sim", "-n", "2", "--dir", folder / "run", "--socket",
                  folder / "agent.sock", "--", "/bin/sh", "-c",
                  "[ $RANK = 1 ] || exec tail -f /dev/null"});
  const auto says_so = [](const CommandResult& r) {
    return r.err.find("member 1 exited with status 0 before it attached") != std::string::npos;
  };
  EXPECT_TRUE(run.ReadUntil(says_so, seconds(30))) << run.End(seconds(1)).err;
  const CommandResult status = Rewire({"status", "--socket", folder / "agent.sock"});
  EXPECT_THAT(status.out, HasSubstr("member 1, which has ended with status 0"));
  EXPECT_THAT(status.out, HasSubstr("member 0, process "));
  run.Signal(SIGTERM);
  EXPECT_EQ(run.End(seconds(30)).status, 128 + SIGTERM);
}

TEST(BadInputTest, AProgramThatNeverCallsNccl) {
  TemporaryFolder folder;
  Background run({REWIRE_COMMAND, "run", "--sim", "-n", "1", "--max", "2", "--dir", folder / "run",
                  "--socket", folder / "agent.sock", "--", "/bin/sh", "-c",
                  "echo ready; read line; exit 3"});
  // Standard input is /dev/null there: the command runs to its end with its own status.
  CommandResult end = run.End(seconds(30));
  EXPECT_EQ(end.status, 3);
  EXPECT_EQ(end.out, "[member 0] ready\n");
  Background waits({REWIRE_COMMAND, "run", "--sim", "-n", "1", "--max", "2", "--dir",
                    folder / "run", "--socket", folder / "agent.sock", "--", "/bin/sh", "-c",
                    "echo ready; exec tail -f /dev/null"});
  ASSERT_TRUE(waits.ReadUntil([](const CommandResult& r) { return !r.out.empty(); }, seconds(30)));
  const CommandResult r = Rewire({"resize", "2", "--socket", folder / "agent.sock"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("rewire: "));
  waits.Signal(SIGTERM);
  EXPECT_EQ(waits.End(seconds(30)).status, 128 + SIGTERM);
}

TEST(BadInputTest, CommandsAndGarbageWhileAJobTrains) {
  // The members' sockets include NCCL's. NCCL 2.28.9's RAS thread frees a connection twice when it
  // reads malformed data (rasSocketTerminate); NCCL's own sockets are out of scope here.
  TrainingJob job({.environment = {"NCCL_RAS_ENABLE=0"}});
  const struct {
    std::string command;
    std::vector<std::string> arguments;
    std::string error;
  } wrong[] = {{"resize", {"5"}, "4"},
               {"drain", {"17"}, "17"},
               {"drain", {"0", "1"}, "must remain"},
               {"replace", {"9"}, "9"}};
  for (const auto& w : wrong) {
    const CommandResult r = job.Ask(w.command, w.arguments);
    EXPECT_EQ(r.status, 1) << w.command;
    EXPECT_THAT(r.err, AllOf(HasSubstr("rewire: "), HasSubstr(w.error))) << w.command;
  }
  EXPECT_EQ(job.Status()["epoch"], 1);

  // Malformed data is sent to every socket of every member and of the agent during a change.
  std::vector<std::string> addresses;
  for (const size_t slot : {0, 1}) {
    for (std::string& a : ListeningAddresses(job.PidOfSlot(slot))) addresses.push_back(a);
  }
  ASSERT_THAT(addresses, Not(IsEmpty()));
  Background change = job.Begin("resize", {"4"});
  const std::string garbage(300, '\xee');
  int sent = 0;
  bool done = false;
  while (!done) {
    for (const std::string& address : addresses) {
      UniqueFd fd;
      if (ConnectTcp(address, Now() + seconds(5), &fd).ok() &&
          SendAll(fd.get(), garbage, Now() + seconds(5)).ok()) {
        ++sent;
      }
    }
    UniqueFd fd;
    if (ConnectUnix(job.socket(), Now() + seconds(5), &fd).ok()) {
      (void)SendAll(fd.get(), garbage, Now() + seconds(5));
    }
    done = change.ReadUntil(
               [](const CommandResult& r) {
                 return r.out.find("members by slot") != std::string::npos;
               },
               milliseconds(20)) ||
           Ended(change.pid());
  }
  const CommandResult end = change.End(seconds(30));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_GT(sent, 0);
  const nlohmann::json status = job.Status();
  EXPECT_EQ(status["epoch"], 2);
  EXPECT_GT(status["counters"]["garbage"].get<int>(), 0);
  EXPECT_EQ(status["members"].size(), 4u);
  job.Train();
  job.FinishExact();
}

}  // namespace
}  // namespace rewire
