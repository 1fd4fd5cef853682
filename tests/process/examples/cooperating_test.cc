// examples/cooperating.c under `rewire run`: the world grows, loses a member by a drain, and ends.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {
namespace {

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

}  // namespace
}  // namespace rewire
