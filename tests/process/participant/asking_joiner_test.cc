// A joiner that waits in rewireUniqueId() for a name that no member publishes. The joiner treats
// SIGTERM as a reclaim notice, or ignores it. A dismissed joiner ends without SIGKILL: the launcher
// would allow more time than these tests take.
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "tests/process/agent/job.h"

namespace rewire {
namespace {

// The parameter: whether the joiner ignores SIGTERM.
class AskingJoinerTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Says("[member 1] ready\n"));
    grow_.emplace(std::vector<std::string>{REWIRE_COMMAND, "resize", "3", "--socket", socket_});
    ASSERT_TRUE(Says("[member 2] asks\n"));
  }
  bool Says(const std::string& line) {
    return job_.ReadUntil(
        [&](const CommandResult& r) { return r.out.find(line) != std::string::npos; }, seconds(40));
  }

  // Either the call has failed, or SIGTERM has ended the joiner.
  static bool JoinerHasEnded(const CommandResult& r) {
    return r.out.find("[member 2] BAD unique id at 0 in step 0: ") != std::string::npos ||
           r.err.find("member 2 was killed by signal 15") != std::string::npos;
  }

  TemporaryFolder folder_;
  const std::string socket_ = folder_ / "agent.sock";
  Background job_{
      {REWIRE_COMMAND, "run", "-n", "2", "--max", "3", "--no-preload", "--grace", "300s", "--dir",
       folder_ / "run", "--socket", socket_, "--", STATE_MEMBER, folder_ / "barrier",
       folder_ / "stop"},
      {std::string("STATE_MEMBER_ASKS=") + (GetParam() ? "ignores-sigterm" : "takes-sigterm")}};
  std::optional<Background> grow_;
};

TEST_P(AskingJoinerTest, EndsByItselfWhenTheGrowIsCalledOff) {
  const CommandResult drain =
      Rewire({"drain", "1", "--within", "60s", "--socket", socket_}, seconds(40));
  EXPECT_EQ(drain.status, 0) << drain.err;
  EXPECT_TRUE(job_.ReadUntil(JoinerHasEnded, seconds(40)));
}

TEST_P(AskingJoinerTest, EndsByItselfWithTheJob) {
  std::ofstream(folder_ / "stop") << "now";
  const CommandResult end = job_.End(seconds(40));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_TRUE(JoinerHasEnded(end)) << end.err;
}

INSTANTIATE_TEST_SUITE_P(Signals, AskingJoinerTest, ::testing::Bool());

}  // namespace
}  // namespace rewire
