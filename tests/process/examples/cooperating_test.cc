// The examples in C under `rewire run`: their world changes, and their state stays whole.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {
namespace {

// Returns when the job's agent answers and all initial members have attached.
void WaitForTheWorld(const std::string& socket) {
  const Time deadline = Now() + seconds(40);
  while (Rewire({"wait", "--socket", socket}, seconds(40)).status != 0 && Now() < deadline) {
  }
}

TEST(CooperatingTest, GrowsDrainsAndEndsWithCheckedState) {
  const TemporaryFolder folder;
  const std::string socket = folder / "agent.sock";
  Background job({REWIRE_COMMAND, "run", "-n", "2", "--max", "3", "--dir", folder / "run",
                  "--socket", socket, "--", COOPERATING, folder / "stop"});
  const auto prints = [&job](const std::string& text) {
    return job.ReadUntil([&](const CommandResult& r) { return r.out.find(text) != r.out.npos; },
                         seconds(40));
  };
  ASSERT_TRUE(prints("step 1: continue, slot 0 of 2")) << job.End(seconds(1)).err;

  const CommandResult grown = Rewire({"resize", "--socket", socket, "3"}, seconds(60));
  EXPECT_EQ(grown.status, 0) << grown.err;
  for (const char* place : {"slot 0 of 3", "slot 1 of 3", "slot 2 of 3"}) {
    EXPECT_TRUE(prints(std::string("world changed, ") + place)) << place;
  }

  const CommandResult drained = Rewire({"drain", "--socket", socket, "1"}, seconds(60));
  EXPECT_EQ(drained.status, 0) << drained.err;
  EXPECT_TRUE(prints(": leave, "));
  EXPECT_TRUE(prints("world changed, slot 1 of 2"));

  std::ofstream(folder / "stop") << "now";
  const CommandResult end = job.End(seconds(40));
  EXPECT_EQ(end.status, 0) << end.err;
}

TEST(CounterTest, AJoinerHasTheCount) {
  const TemporaryFolder folder;
  const std::string socket = folder / "agent.sock";
  Background job({REWIRE_COMMAND, "run", "-n", "1", "--max", "2", "--dir", folder / "run",
                  "--socket", socket, "--", COUNTER, folder / "stop"});
  WaitForTheWorld(socket);
  const CommandResult replaced = Rewire({"replace", "--socket", socket, "0"}, seconds(60));
  EXPECT_EQ(replaced.status, 0) << replaced.err;
  std::ofstream(folder / "stop") << "now";
  const CommandResult end = job.End(seconds(40));
  EXPECT_EQ(end.status, 0) << end.err;
  // The joiner ends at its next step, or one later.
  const auto steps_of = [&](const std::string& member) {
    int steps = -1;
    const size_t line = end.out.find("[member " + member + "] ");
    if (line != std::string::npos) {
      std::sscanf(end.out.c_str() + line, "[member %*d] %d steps: success", &steps);
    }
    return steps;
  };
  // Either process may print first.
  const int left = steps_of("0");
  const int ended = steps_of("1");
  EXPECT_GE(left, 1);
  EXPECT_GE(ended, left);
}

// Rank 1 is a script that goes on after its program has left.
TEST(CounterTest, AProcessThatHasLeftDoesNotKeepTheJob) {
  const TemporaryFolder folder;
  const std::string socket = folder / "agent.sock";
  Background job({REWIRE_COMMAND, "run", "-n", "2", "--grace", "1s", "--dir", folder / "run",
                  "--socket", socket, "--", "/bin/sh", "-c",
                  "\"$0\" \"$1\" && [ $RANK = 0 ] || exec tail -f /dev/null", COUNTER,
                  folder / "stop"});
  WaitForTheWorld(socket);
  const CommandResult drained = Rewire({"drain", "--socket", socket, "1"}, seconds(60));
  EXPECT_EQ(drained.status, 0) << drained.err;
  std::ofstream(folder / "stop") << "now";
  const CommandResult end = job.End(seconds(40));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_NE(end.err.find("the remaining processes are asked to end"), std::string::npos) << end.err;
}

}  // namespace
}  // namespace rewire
