// Deaths and silences around a training job: the agent, in steady state and in every phase of a
// change, and a member that stops without exiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "tests/process/job/training_job.h"

namespace rewire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(SurvivalTest, AnAgentKilledInSteadyState) {
  TrainingJob job({});
  const pid_t agent = job.AgentPid();
  kill(agent, SIGKILL);
  job.Train();
  job.WaitSteady();
  EXPECT_NE(agent, job.AgentPid());
  EXPECT_EQ(job.Status()["epoch"], 1);
  EXPECT_EQ(job.Ask("resize", {"3"}).status, 0);
  EXPECT_THAT(job.FinishExact().err, HasSubstr("the agent was killed by signal 9"));
}

// The launcher waits longer before each restart of the agent; commands wait longer than the
// launcher.
TEST(SurvivalTest, AnAgentKilledAgainAndAgainIsStillAnswered) {
  TrainingJob job({});
  for (int i = 0; i < 8; ++i) {
    const pid_t agent = job.AgentPid();
    kill(agent, SIGKILL);
    ASSERT_TRUE(Eventually([&] { return Ended(agent); }));
  }
  job.WaitSteady();
  job.FinishExact();
}

// The agent is killed as soon as it has reported a phase. The store decides whether the change was
// committed; in both cases training continues, and the next change works.
TEST(SurvivalTest, AnAgentKilledInEveryPhaseOfAChange) {
  TrainingJob job({});
  int size = 2;
  for (const char* phase : {"accepted", "PREPARE", "READY", "ARMED", "AT_BOUNDARY", "COMMITTED"}) {
    SCOPED_TRACE(phase);
    const pid_t agent = job.AgentPid();
    const int next = size == 2 ? 3 : 2;
    Background change = job.Begin("resize", {std::to_string(next)});
    EXPECT_TRUE(change.ReadUntil(
        [phase](const CommandResult& r) { return r.err.find(phase) != std::string::npos; },
        seconds(20)));
    kill(agent, SIGKILL);
    const CommandResult end = change.End(seconds(40));
    EXPECT_TRUE(end.status == 0 || end.err.find("rewire: ") != std::string::npos) << end.err;
    job.WaitSteady();
    job.Train();
    if (static_cast<int>(job.World().size()) != next) {
      const CommandResult again = job.Ask("resize", {std::to_string(next)});
      EXPECT_EQ(again.status, 0) << again.err;
    }
    EXPECT_THAT(job.World(), SizeIs(next));
    size = next;
  }
  job.FinishExact();
}

TEST(SurvivalTest, AStoppedMemberIsLostAndIsRefusedWhenItComesBack) {
  TrainingJob job({.members = 3, .max = 3, .zero = 1});
  job.Train();  // a death before the first complete copy is not survived (docs/limits.md)
  const pid_t stopped = job.PidOfSlot(1);
  kill(stopped, SIGSTOP);
  job.WaitSteady(2);
  EXPECT_THAT(job.World(), ElementsAre(0, 2));
  const nlohmann::json status = job.Status();
  EXPECT_EQ(status["transitions"].back()["kind"], "loss");
  job.Train();
  kill(stopped, SIGCONT);
  EXPECT_TRUE(Eventually([&] { return Ended(stopped); })) << "the member that was lost hangs";
  job.Train();
  job.FinishExact();
}

TEST(SurvivalTest, AStoreThatIsCorruptedStopsChangesAndNotTheJob) {
  TrainingJob job({});
  job.WaitSteady();
  const pid_t agent = job.AgentPid();
  {
    std::fstream store(job.store(), std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(store.good());
    store << "this is no record";
  }
  kill(agent, SIGKILL);
  const auto says_so = [](const CommandResult& r) {
    return r.err.find("is corrupt at byte 0") != std::string::npos;
  };
  EXPECT_TRUE(job.launcher().ReadUntil(says_so, seconds(20)));
  const CommandResult change = job.Ask("resize", {"3"});
  EXPECT_EQ(change.status, 1);
  EXPECT_THAT(change.err, HasSubstr("rewire: "));
  job.Train(20);
  job.FinishExact();
}

// A new store would begin at epoch 1 with the first members, and the others would be refused.
TEST(SurvivalTest, AnAgentThatMissesItsFilesStopsChangesAndNotTheJob) {
  for (const std::string suffix : {"", ".secret"}) {
    SCOPED_TRACE(suffix);
    TrainingJob job({});
    EXPECT_EQ(job.Ask("resize", {"3"}).status, 0);
    const pid_t agent = job.AgentPid();
    ASSERT_EQ(unlink((job.store() + suffix).c_str()), 0);
    kill(agent, SIGKILL);
    const auto says_so = [](const CommandResult& r) {
      return r.err.find("resume the job: ") != std::string::npos;
    };
    EXPECT_TRUE(job.launcher().ReadUntil(says_so, seconds(20)));
    job.Train(20);
    job.FinishExact();
  }
}

}  // namespace
}  // namespace rewire
