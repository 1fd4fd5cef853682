// Rebuilds of programs whose processes drive several ranks: from one thread, in groups or by turns,
// and from one thread for each rank.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/process/communicators/job.h"

namespace rewire {
namespace {

class RanksTest : public CommunicatorsJob {
 protected:
  RanksTest() : CommunicatorsJob(RANKS_PROGRAM) {}
  // Rebuilds under load, before and after the idle communicator is used.
  void RebuildUnderLoad(int processes, const std::string& mode) {
    Start(processes, mode);
    for (int epoch = 2; epoch <= 3; ++epoch) Rebuild(epoch);
    // The communicators that are not in use: `idle` and `ending`.
    AwaitPending("idle", 2 * ranks_);
    AwaitPending("point-to-point", ranks_);
    Touch("use-1");
    Await("used it 1\n");
    Rebuild(4);
    Touch("use-2");
    Await("used it 2\n");
    Finish();
  }
};

TEST_F(RanksTest, OneThreadDrivesSeveralRanksInGroups) { RebuildUnderLoad(2, "group"); }

TEST_F(RanksTest, OneThreadDrivesSeveralRanksByTurns) { RebuildUnderLoad(2, "turns"); }

TEST_F(RanksTest, OneThreadDrivesEachRank) { RebuildUnderLoad(2, "threads"); }

TEST_F(RanksTest, AllRanksAreInOneProcess) { RebuildUnderLoad(1, "all"); }

TEST_F(RanksTest, ARebuildWaitsUntilTheLastRankOfAProcessIsDestroyed) {
  Start(2, "group");
  Rebuild(2);
  Touch("close-1");
  Await("closed 1\n");
  Background rebuild({REWIRE_COMMAND, "rebuild", "--socket", Socket()});
  const Time until = Now() + seconds(30);
  while (Status()["phase"] != "RESERVE" && Now() < until) {
  }
  EXPECT_EQ(Status()["phase"], "RESERVE");
  Touch("close-2");
  Await("closed 2\n");
  const CommandResult end = rebuild.End(seconds(60));
  EXPECT_EQ(end.status, 0) << end.out << end.err;
  EXPECT_EQ(Status()["epoch"], 3);
  Finish();
}

TEST_F(RanksTest, RanksThatAreDestroyedDuringARebuildDoNotEndIt) {
  Start(2, "group");
  Background rebuild({REWIRE_COMMAND, "rebuild", "--socket", Socket()});
  for (const std::string rank : {"1", "2"}) {
    Touch("close-" + rank);
    Await("closed " + rank + "\n");
  }
  const CommandResult end = rebuild.End(seconds(60));
  EXPECT_EQ(end.status, 0) << end.out << end.err;
  Rebuild(Status()["epoch"].get<int>() + 1);
  Finish();
}

// The ranks of the process that builds wait for the process that is stopped, inside NCCL.
TEST_F(RanksTest, ABuildThatEndsAtItsDeadlineLeavesAllRanksInUse) {
  Start(2, "group", {"REWIRE_BUILD_MS=1000", "REWIRE_SILENCE_MS=60000"});
  const nlohmann::json status = Status();
  pid_t stopped = 0;
  for (const auto& member : status["members"]) {
    if (member["member"] == 1) stopped = member["pid"].get<pid_t>();
  }
  ASSERT_GT(stopped, 0) << status;
  kill(stopped, SIGSTOP);
  const CommandResult refused = Ask("rebuild");
  kill(stopped, SIGCONT);
  EXPECT_EQ(refused.status, 1) << refused.out << refused.err;
  EXPECT_EQ(Status()["epoch"], 1);
  Touch("use-1");
  Await("used it 1\n");
  Finish();
}

TEST_F(RanksTest, TheDeathOfAProcessIsTheLossOfAllItsRanks) {
  Start(3, "lost");
  Rebuild(2);
  Touch("kill");
  ranks_ = 2;  // processes that are left
  Await("lost\n");
}

}  // namespace
}  // namespace rewire
