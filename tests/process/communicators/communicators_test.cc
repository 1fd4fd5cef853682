// Rebuilds of programs with all kinds of communicators: over part of the members, idle, with sends
// and receives alone, and non-blocking.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/process/communicators/job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

class CommunicatorsTest : public CommunicatorsJob {
 protected:
  CommunicatorsTest() : CommunicatorsJob(PROGRAM) {}
};

TEST_F(CommunicatorsTest, AnIdleCommunicatorIsUsedAgainAfterThreeRebuilds) {
  Start(4, "all");
  for (int epoch = 2; epoch <= 4; ++epoch) Rebuild(epoch);
  // Neither communicator has reached a cut: the status has the reasons, also as text.
  AwaitPending("idle", 4);
  AwaitPending("point-to-point", 4);
  EXPECT_THAT(Ask("status").out, HasSubstr("idle: it switches at its next operation"));
  Touch("use-1");
  Await("used it 1\n");
  for (int epoch = 5; epoch <= 7; ++epoch) Rebuild(epoch);
  Touch("use-2");
  Await("used it 2\n");
  Rebuild(8);
  Finish();
}

// The first operation on a new generation must come before the program's own on all members, also
// where the program's own is in a group.
TEST_F(CommunicatorsTest, OneMemberMayUseGroupsWhereTheOthersDoNot) {
  Start(2, "grouped", {"CUDA_DEVICE_MAX_CONNECTIONS=4"});
  for (int epoch = 2; epoch <= 13; ++epoch) Rebuild(epoch);
  Finish();
}

TEST_F(CommunicatorsTest, AnInterruptedCommandSaysThatTheChangeContinues) {
  Start(2, "blocking", {"REWIRE_SILENCE_MS=60000"});
  // The change waits for a member that stands still, which is not lost meanwhile.
  const auto stopped = Status()["members"][1]["pid"].get<pid_t>();
  ASSERT_EQ(kill(stopped, SIGSTOP), 0);
  Background command({REWIRE_COMMAND, "rebuild", "--socket", Socket()});
  // The first report of progress: the agent has begun.
  EXPECT_TRUE(
      command.ReadUntil([](const CommandResult& r) { return !r.err.empty(); }, seconds(30)));
  command.Signal(SIGINT);
  const CommandResult end = command.End(seconds(30));
  EXPECT_EQ(kill(stopped, SIGCONT), 0);
  EXPECT_EQ(end.status, 128 + SIGINT);
  EXPECT_THAT(end.err, HasSubstr("has begun continues"));
  const Time until = Now() + seconds(60);
  while (Status()["epoch"] != 2 && Now() < until) {
  }
  EXPECT_EQ(Status()["epoch"], 2);
  Finish();
}

TEST_F(CommunicatorsTest, AnAgentThatRestartsLearnsOfPendingSwapsFromTheMembers) {
  Start(2, "blocking");
  Rebuild(2);
  AwaitPending("idle", 2);
  const nlohmann::json before = Status();
  kill(before["agent"]["pid"].get<int>(), SIGKILL);
  // The next agent answers, and all members have reported to it.
  const Time until = Now() + seconds(30);
  nlohmann::json after;
  do {
    after = Status();
  } while (Now() < until &&
           (!after.is_object() || after["agent"]["pid"] == before["agent"]["pid"] ||
            after["phase"] != "STEADY" || after["pending"].size() < 4));
  AwaitPending("idle", 2);
  AwaitPending("point-to-point", 2);
  Rebuild(3);
  AwaitPending("idle", 2);
  Touch("use-1");
  Await("used it 1\n");
  Finish();
}

TEST_F(CommunicatorsTest, ACapturedCommunicatorIsPinnedUntilItsGraphsAreReleased) {
  Start(2, "graphs");
  Rebuild(2);
  for (int round = 0; round < 2; ++round) {
    Touch("use-" + std::to_string(2 * round + 1));
    Await("used it " + std::to_string(2 * round + 1) + "\n");
    AwaitPinned(2);
    EXPECT_THAT(Ask("status").out, HasSubstr("captured into a CUDA graph"));
    const CommandResult refused = Ask("rebuild");
    EXPECT_NE(refused.status, 0);
    EXPECT_THAT(refused.err, HasSubstr("is pinned on member"));
    Touch("use-" + std::to_string(2 * round + 2));
    Await("used it " + std::to_string(2 * round + 2) + "\n");
    AwaitPinned(0);
    Rebuild(3 + round);
  }
  Finish();
}

TEST_F(CommunicatorsTest, APendingSwapPassesAtACapturedOperation) {
  Start(2, "captures");
  Rebuild(2);
  AwaitPending("idle", 2);
  Touch("use-1");
  Await("used it 1\n");
  AwaitPending("idle", 0);
  AwaitPinned(2);
  Touch("use-2");
  Await("used it 2\n");
  Touch("use-3");
  Await("used it 3\n");
  AwaitPinned(0);
  Rebuild(3);
  Finish();
}

TEST_F(CommunicatorsTest, TheStreamOfTheLastOperationMayBeDestroyed) {
  Start(2, "streams");
  for (int use = 1; use <= 4; ++use) {
    Touch("use-" + std::to_string(use));
    Await("used it " + std::to_string(use) + "\n");
    Rebuild(1 + use);
    AwaitPending("idle", 2);
  }
  Finish();
}

// An operation that NCCL rejected is in no graph.
TEST_F(CommunicatorsTest, ARejectedCapturedOperationDoesNotPin) {
  Start(2, "rejected");
  Touch("use-1");
  Await("used it 1\n");
  Rebuild(2);
  Finish();
}

}  // namespace
}  // namespace rewire
