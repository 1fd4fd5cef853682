// Losses in a job whose update has no collective operation: a member may copy its new state while
// another member's copy of the state before is incomplete.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <sstream>

#include "tests/process/agent/job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The parameter: whether the lost process dies. Otherwise it counts as lost because it did not
// leave in time, and goes on for some updates.
class LocalUpdateTest : public ::testing::TestWithParam<bool> {
 protected:
  nlohmann::json Members() {
    const CommandResult r = Rewire({"status", "--json", "--socket", socket_}, seconds(40));
    return nlohmann::json::parse(r.out)["world"]["members"];
  }
  // Waits until a world of `size` members has made some updates.
  nlohmann::json Trained(size_t size) {
    nlohmann::json members;
    uint64_t first = UINT64_MAX;
    const Time deadline = Now() + seconds(60);
    do {
      members = Members();
      if (members.size() != size) continue;
      first = std::min(first, members[0]["updates"].get<uint64_t>());
    } while ((members.size() != size || members[0]["updates"].get<uint64_t>() < first + 6) &&
             Now() < deadline);
    return members;
  }
  void Lose(const nlohmann::json& member) {
    if (GetParam()) {
      kill(member["pid"].get<int>(), SIGKILL);
      return;
    }
    const std::string id = std::to_string(member["member"].get<int>());
    Rewire({"drain", id, "--within", "1ms", "--socket", socket_}, seconds(40));
  }

  TemporaryFolder folder_;
  const std::string socket_ = folder_ / "agent.sock";
};

TEST_P(LocalUpdateTest, EveryLossIsSurvived) {
  for (uint32_t job_number = 0; job_number < 4; ++job_number) {
    const std::string stop = folder_ / ("stop" + std::to_string(job_number));
    Background job(
        {REWIRE_COMMAND, "run", "-n", "5", "--no-preload", "--dir", folder_ / "run", "--socket",
         socket_, "--", STATE_MEMBER, folder_ / ("barrier" + std::to_string(job_number)), stop},
        {"STATE_MEMBER_LOCAL_UPDATES=1"});
    ASSERT_TRUE(job.ReadUntil(
        [](const CommandResult& r) { return r.out.find("ready\n") != std::string::npos; },
        seconds(40)));
    for (size_t size = 5; size > 2; --size) {
      const nlohmann::json members = Trained(size);
      ASSERT_EQ(members.size(), size) << job.End(seconds(1)).err;
      Lose(members[(job_number + size) % size]);
    }
    EXPECT_EQ(Trained(2).size(), 2u);
    std::ofstream(stop) << "now";
    const CommandResult end = job.End(seconds(30));
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_THAT(end.out, Not(HasSubstr("BAD")));
    const std::string lost = GetParam() ? "is lost: its connection ended" : "did not leave in time";
    size_t losses = 0;
    std::istringstream lines(end.err);
    for (std::string line; std::getline(lines, line);) {
      const bool of_change = line.find("aborted: ") != std::string::npos;
      losses += !of_change && line.find(lost) != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(losses, 3u) << end.err;
    EXPECT_THAT(end.out, HasSubstr("done step"));
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, LocalUpdateTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Death" : "MissedDrain"; });

}  // namespace
}  // namespace rewire
