// Every change of the world with real state: grow, drain, replace, SIGKILL, and the agent killed.
// The program itself checks every byte at every update and prints BAD on an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "tests/process/agent/job.h"
#include "tests/process/participant/flood.h"

namespace rewire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A program, and where the new parts of its state are.
struct StateProgram {
  const char* name;
  std::vector<std::string> command;  // the files' names come after the first element
};

class StateTest : public ::testing::TestWithParam<StateProgram> {
 protected:
  void SetUp() override {
    // Both members have attached when the agent answers.
    ASSERT_TRUE(job_.ReadUntil(
        [](const CommandResult& r) {
          const size_t first = r.out.find("ready\n");
          return first != std::string::npos &&
                 r.out.find("ready\n", first + 1) != std::string::npos;
        },
        seconds(20)))
        << job_.End(seconds(1)).err;
  }
  CommandResult Ask(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--socket", folder_ / "agent.sock"});
    return Rewire(arguments, seconds(40));
  }
  nlohmann::json Status() { return nlohmann::json::parse(Ask({"status", "--json"}).out); }
  std::vector<int> World() {
    std::vector<int> members;
    const nlohmann::json status = Status();
    for (const auto& m : status["world"]["members"]) members.push_back(m["member"].get<int>());
    return members;
  }
  void WaitSteady(int epoch) {
    EXPECT_EQ(Ask({"wait", "--for", "epoch", std::to_string(epoch), "--timeout", "30s"}).status, 0);
    EXPECT_EQ(Ask({"wait", "--timeout", "30s"}).status, 0);
  }
  // Waits for a few updates in the current world: only then does every shard have a second,
  // complete copy.
  void Train() {
    const auto updates = [this] {
      const nlohmann::json status = Status();
      return status["world"]["members"][0]["updates"].get<uint64_t>();
    };
    const uint64_t enough = updates() + 4;
    const Time deadline = Now() + seconds(30);
    uint64_t now = 0;
    while ((now = updates()) < enough && Now() < deadline) {
    }
    EXPECT_GE(now, enough);
  }
  // The job ends by itself, no member saw a wrong byte, and all members ended at the same step.
  void Finish() {
    std::ofstream(folder_ / "stop") << "now";
    const CommandResult end = job_.End(seconds(30));
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_THAT(end.out, Not(HasSubstr("BAD")));
    EXPECT_THAT(end.out, HasSubstr("done step"));
  }

  std::vector<std::string> Command() {
    std::vector<std::string> command = {REWIRE_COMMAND,
                                        "run",
                                        "-n",
                                        "2",
                                        "--max",
                                        "6",
                                        "--metrics",
                                        "0",
                                        "--no-preload",
                                        "--socket",
                                        folder_ / "agent.sock",
                                        "--"};
    command.insert(command.end(), GetParam().command.begin(), GetParam().command.end());
    const auto files = command.end() - static_cast<ptrdiff_t>(GetParam().command.size()) + 1;
    command.insert(files, {folder_ / "barrier", folder_ / "stop"});
    return command;
  }

  TemporaryFolder folder_;
  Background job_{Command()};
};

TEST_P(StateTest, GrowDrainReplaceKillGrow) {
  WaitSteady(1);
  EXPECT_EQ(Ask({"resize", "4"}).status, 0);
  EXPECT_EQ(Ask({"drain", "1", "--within", "60s"}).status, 0);
  EXPECT_EQ(Ask({"replace", "2"}).status, 0);
  EXPECT_THAT(World(), ElementsAre(0, 4, 3));
  Train();
  kill(Status()["world"]["members"][0]["pid"].get<int>(), SIGKILL);
  WaitSteady(5);
  EXPECT_THAT(World(), ElementsAre(4, 3));
  EXPECT_EQ(Ask({"resize", "4"}).status, 0);
  Finish();
}

TEST_P(StateTest, TheOldWorldTrainsOnWithoutItsAgent) {
  WaitSteady(1);
  kill(Status()["agent"]["pid"].get<int>(), SIGKILL);
  WaitSteady(1);
  EXPECT_EQ(Ask({"resize", "3"}).status, 0);
  Finish();
}

// Connections of unauthenticated processes neither stop a change nor fill the members' tables.
TEST_P(StateTest, ChangesItsWorldUnderAFloodOfConnections) {
  WaitSteady(1);
  std::vector<pid_t> pids;
  const nlohmann::json status = Status();  // must outlive the loop over a part of it
  for (const auto& m : status["world"]["members"]) pids.push_back(m["pid"].get<int>());
  {
    const Flood flood(pids);
    ASSERT_GE(flood.ports(), pids.size());
    const auto refused = [this] {
      const std::string metrics = Ask({"metrics"}).out;
      const std::string name = "rewire_stream_connections_refused_total{member=\"0\"} ";
      const size_t at = metrics.find(name);
      return at == std::string::npos ? 0 : std::stod(metrics.substr(at + name.size()));
    };
    const Time deadline = Now() + seconds(30);
    while ((refused() < 500 || flood.connections() < 2000) && Now() < deadline) {
    }
    EXPECT_GE(refused(), 500);
    for (const char* size : {"4", "2"}) {
      const CommandResult r = Ask({"resize", size});
      EXPECT_EQ(r.status, 0) << r.err;
      for (const pid_t pid : pids) {
        const auto files =
            std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd");
        EXPECT_LE(std::distance(begin(files), end(files)), 64 + 64 + 100);
      }
    }
  }
  Train();
  Finish();
}

INSTANTIATE_TEST_SUITE_P(Programs, StateTest,
                         ::testing::Values(StateProgram{"InNewMemory", {STATE_MEMBER}},
                                           StateProgram{"InPlace", {STATE_MEMBER, "in-place"}},
                                           StateProgram{"ByLayouts", {LAYOUT_MEMBER}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rewire
