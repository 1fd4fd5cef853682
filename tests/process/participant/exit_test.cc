// A member whose exit handler detaches: its exit status says whether it had finished.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/process/agent/job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ExitTest, AMemberThatFailsAndDetachesInAnExitHandlerIsLost) {
  const TemporaryFolder folder;
  Background job(
      {REWIRE_COMMAND, "run", "-n", "3", "--no-preload", "--dir", folder / "run", "--socket",
       folder / "agent.sock", "--", STATE_MEMBER, folder / "barrier", folder / "stop"},
      {"STATE_MEMBER_FAILS=3"});
  // The two other members repeat the lost step, in a world of their own.
  EXPECT_TRUE(job.ReadUntil(
      [](const CommandResult& r) {
        return r.out.find("repeat epoch 2 slot 0/2") != std::string::npos &&
               r.out.find("repeat epoch 2 slot 1/2") != std::string::npos;
      },
      seconds(40)));
  std::ofstream(folder / "stop") << "now";
  const CommandResult end = job.End(seconds(30));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("member 1 exited with status 3"));
  EXPECT_THAT(end.out, Not(HasSubstr("BAD")));
}

TEST(ExitTest, AMemberThatReturnsFromMainGetsNoCallback) {
  const TemporaryFolder folder;
  Background job({REWIRE_COMMAND, "run", "-n", "1", "--max", "2", "--no-preload", "--socket",
                  folder / "agent.sock", "--", WRONG_MEMBER, "returns"},
                 {"WRONG_MEMBER_GO=" + (folder / "go")});
  EXPECT_TRUE(job.ReadUntil(
      [](const CommandResult& r) { return r.out.find("exit handler") != std::string::npos; },
      seconds(40)));
  Background resize({REWIRE_COMMAND, "resize", "2", "--socket", folder / "agent.sock"});
  const CommandResult refused = resize.End(seconds(40));
  std::ofstream(folder / "go") << "now";
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.out + refused.err,
              HasSubstr("member 0 cannot prepare: the program ends without "
                        "rewireDetach(): its exit handlers have begun"));
  const CommandResult end = job.End(seconds(40));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, Not(HasSubstr("BAD")));
}

TEST(ExitTest, AJobWhoseMembersAllReturnFromMainHasEndedByItself) {
  const TemporaryFolder folder;
  std::ofstream(folder / "go") << "now";
  Background job({REWIRE_COMMAND, "run", "-n", "2", "--no-preload", "--socket",
                  folder / "agent.sock", "--", WRONG_MEMBER, "returns"},
                 {"WRONG_MEMBER_GO=" + (folder / "go")});
  const CommandResult end = job.End(seconds(40));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, Not(HasSubstr("rewire: the job is stopped")));
}

}  // namespace
}  // namespace rewire
