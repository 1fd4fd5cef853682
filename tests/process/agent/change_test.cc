// Changes the world of a job of toy members: by commands, by signals, by a member's death, and with
// a killed agent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/process/agent/job.h"

namespace rewire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int PidOfSlot(const nlohmann::json& status, int slot) {
  return status["world"]["members"][static_cast<size_t>(slot)]["pid"].get<int>();
}

TEST(ChangeTest, GrowDrainReplaceAndEnd) {
  Job job(2, 4);
  CommandResult r = job.Ask("resize", {"4"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("epoch 1→2 boundary committed"));
  EXPECT_THAT(r.err, HasSubstr("accepted: resize to 4"));
  EXPECT_THAT(r.err, HasSubstr("COMMITTED"));
  EXPECT_THAT(job.World(), ElementsAre(0, 2, 1, 3));

  r = job.Ask("drain", {"2", "--within", "60s", "--quiet"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_THAT(job.World(), ElementsAre(0, 1, 3));

  r = job.Ask("replace", {"1", "--json", "--reason", "a warm GPU"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "");
  const auto answer = nlohmann::json::parse(r.out);
  EXPECT_EQ(answer["epoch"], 4);
  EXPECT_EQ(answer["world"], nlohmann::json({0, 4, 3}));
  EXPECT_EQ(answer["transition"]["result"], "committed");
  EXPECT_EQ(answer["transition"]["bytes"], 4000);

  r = job.Ask("rebuild");
  EXPECT_NE(r.status, 0);
  EXPECT_THAT(r.err, HasSubstr("nothing to rebuild"));
  const nlohmann::json status = job.Status();
  EXPECT_EQ(status["epoch"], 4);
  EXPECT_EQ(status["transitions"].size(), 3u);

  const CommandResult end = job.Finish();
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("[member 4] entered epoch 4 joining\n"));
  for (int epoch = 2; epoch <= 4; ++epoch) {
    std::ifstream in(job.folder() / ("traces/epoch-" + std::to_string(epoch) + ".json"));
    const auto trace = nlohmann::json::parse(in, nullptr, false);
    ASSERT_TRUE(trace.is_object()) << epoch;
    EXPECT_FALSE(trace["traceEvents"].empty());
  }
  EXPECT_FALSE(std::filesystem::exists(job.folder() / "run"));
  EXPECT_FALSE(std::filesystem::exists(job.folder() / "agent.sock"));
}

TEST(ChangeTest, OnAFullNodeAReplacementSharesTheGpuOfTheOneItReplaces) {
  Job job(2, 2);
  for (const auto& [old, fresh] : {std::pair{"1", 2}, {"0", 3}}) {
    EXPECT_EQ(job.Ask("replace", {old}).status, 0);
    EXPECT_THAT(job.World(), ::testing::Contains(fresh));
  }
  const CommandResult end = job.Finish();
  EXPECT_THAT(end.out, HasSubstr("[member 2] local rank 1\n"));
  EXPECT_THAT(end.out, HasSubstr("[member 3] local rank 0\n"));
}

TEST(ChangeTest, SigtermToAMemberIsAReclaimNotice) {
  Job job(3, 3);
  kill(PidOfSlot(job.Status(), 2), SIGTERM);
  EXPECT_EQ(job.Ask("wait", {"--for", "epoch", "2", "--timeout", "20s"}).status, 0);
  EXPECT_THAT(job.World(), ElementsAre(0, 1));
  EXPECT_EQ(job.Finish().status, 0);
}

TEST(ChangeTest, SigtermToTheLauncherEndsAJobWhoseMembersTakeItAsAReclaimNotice) {
  Job job(3, 3);
  job.launcher().Signal(SIGTERM);
  const CommandResult end = job.launcher().End(seconds(20));
  EXPECT_NE(end.status, 0);
  EXPECT_THAT(end.err, HasSubstr("the job is stopped: every member of the world has a reclaim"));
}

TEST(ChangeTest, ADeadMemberIsSurvivedAndDoesNotFailTheJob) {
  Job job(3, 3);
  kill(PidOfSlot(job.Status(), 0), SIGKILL);
  EXPECT_EQ(job.Ask("wait", {"--for", "epoch=2", "--timeout", "20s"}).status, 0);
  EXPECT_EQ(job.Ask("wait", {"--timeout", "20s"}).status, 0);
  EXPECT_THAT(job.World(), ElementsAre(1, 2));
  EXPECT_EQ(job.Status()["transitions"][0]["kind"], "loss");
  const CommandResult end = job.Finish();
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("member 0 was killed by signal 9"));
}

TEST(ChangeTest, AKilledAgentIsStartedAgainAndTakesOver) {
  Job job(2, 4);
  for (int i = 0; i < 3; ++i) {
    const nlohmann::json before = job.Status();
    kill(before["agent"]["pid"].get<int>(), SIGKILL);
    const CommandResult waited = job.Ask("wait", {"--timeout", "20s"});
    EXPECT_EQ(waited.status, 0) << waited.err;
    const nlohmann::json after = job.Status();
    EXPECT_NE(before["agent"]["pid"], after["agent"]["pid"]);
    EXPECT_EQ(before["epoch"], after["epoch"]);
    EXPECT_EQ(before["world"]["members"][0]["pid"], after["world"]["members"][0]["pid"]);
    const CommandResult r = job.Ask("resize", {i % 2 == 0 ? "3" : "2"});
    EXPECT_EQ(r.status, 0) << r.err;
  }
  const CommandResult end = job.Finish();
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("the agent was killed by signal 9"));
}

TEST(ChangeTest, AStoppedMemberIsLostWithinTheStatedTime) {
  Job job(3, 3);
  const int pid = PidOfSlot(job.Status(), 1);
  kill(pid, SIGSTOP);
  EXPECT_EQ(job.Ask("wait", {"--for", "epoch=2", "--timeout", "20s"}).status, 0);
  EXPECT_THAT(job.World(), ElementsAre(0, 2));
  kill(pid, SIGKILL);
  EXPECT_EQ(job.Finish().status, 0);
}

TEST(ChangeTest, RefusedChangeNamesErrorAndJobContinues) {
  Job job(2, 3);
  const struct {
    std::string command;
    std::vector<std::string> arguments;
    std::string error;
  } wrong[] = {
      {"resize", {"4"}, "3"},
      {"drain", {"17"}, "17"},
      {"drain", {"0", "1"}, "must remain"},
      {"replace", {"9"}, "9"},
      {"trace", {job.folder() / "t.json"}, "no transition"},
      {"trace", {job.folder() / "t.json", "--epoch", "77"}, "77"},
  };
  for (const auto& w : wrong) {
    const CommandResult r = job.Ask(w.command, w.arguments);
    EXPECT_EQ(r.status, 1) << w.command;
    EXPECT_THAT(r.err, HasSubstr("rewire: ")) << w.command;
    EXPECT_THAT(r.err, HasSubstr(w.error)) << w.command;
    EXPECT_EQ(r.out, "");
  }
  const CommandResult json = job.Ask("resize", {"4", "--json"});
  EXPECT_EQ(json.status, 1);
  EXPECT_EQ(nlohmann::json::parse(json.out)["ok"], false);
  EXPECT_EQ(job.Status()["epoch"], 1);
  EXPECT_EQ(job.Finish().status, 0);
}

TEST(ChangeTest, AProgramThatCannotBeStartedDoesNotJoinAndTheJobGoesOn) {
  TemporaryFolder programs;
  // The test removes the job's program before the job grows.
  const std::string program = programs / "toy";
  std::filesystem::copy_file(REWIRE_TOY_MEMBER, program);
  TemporaryFolder folder;
  Background run({REWIRE_COMMAND, "run", "-n", "1", "--max", "2", "--no-preload", "--dir",
                  folder / "run", "--socket", folder / "agent.sock", "--", program,
                  folder / "stop"});
  ASSERT_TRUE(run.ReadUntil(
      [](const CommandResult& r) { return r.out.find("entered epoch 1") != std::string::npos; },
      seconds(20)));
  std::filesystem::remove(program);
  const CommandResult r = Rewire({"resize", "2", "--socket", folder / "agent.sock"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("cannot run '" + program + "'"));
  EXPECT_EQ(Rewire({"wait", "--socket", folder / "agent.sock"}).status, 0);
  std::ofstream(folder / "stop") << "now";
  EXPECT_EQ(run.End(seconds(20)).status, 0);
}

TEST(ChangeTest, TheTraceAndTheMetricsOfATransition) {
  Job job(2, 3, {"--metrics", "0"});
  ASSERT_EQ(job.Ask("resize", {"3"}).status, 0);
  CommandResult r = job.Ask("trace", {"-"});
  ASSERT_EQ(r.status, 0) << r.err;
  std::set<std::string> names;
  const nlohmann::json trace = nlohmann::json::parse(r.out);
  for (const auto& e : trace["traceEvents"]) {
    names.insert(e["name"].get<std::string>());
    if (e["ph"] == "X") {
      EXPECT_GE(e["dur"].get<double>(), 0) << e;
    }
  }
  for (const char* name :
       {"prepare", "pledge", "to boundary", "stream", "enter", "pause", "PREPARE", "COMMITTED"}) {
    EXPECT_TRUE(names.count(name) == 1) << name;
  }
  EXPECT_EQ(job.Ask("wait").status, 0);  // the metrics count a transition after its end
  r = job.Ask("metrics");
  EXPECT_EQ(r.status, 0);
  EXPECT_THAT(r.out, HasSubstr("rewire_epoch 2\n"));
  EXPECT_THAT(r.out,
              HasSubstr("rewire_transitions_total{kind=\"boundary\",result=\"committed\"} 1\n"));
  EXPECT_THAT(r.out, HasSubstr("rewire_state_bytes_total 3000\n"));
  EXPECT_THAT(r.out, HasSubstr("rewire_members{state=\"training\"} 3\n"));
  EXPECT_GT(job.Status()["agent"]["metrics_port"].get<int>(), 0);
  EXPECT_EQ(job.Finish().status, 0);
}

// Without an agent nobody tells the survivors of a death.
TEST(ChangeTest, EndsAJobWhoseAgentCannotBeStartedAfterADeath) {
  Job job(2, 2, {"--grace", "1s"});
  const nlohmann::json status = job.Status();
  std::filesystem::remove(status["agent"]["store"].get<std::string>());
  kill(status["agent"]["pid"].get<int>(), SIGKILL);
  kill(PidOfSlot(status, 1), SIGKILL);
  const CommandResult end = job.launcher().End(seconds(60));
  EXPECT_EQ(end.status, 128 + SIGKILL) << end.err;
  EXPECT_THAT(end.err, HasSubstr("the job is stopped: a member died, and no agent can be started"));
}

}  // namespace
}  // namespace rewire
