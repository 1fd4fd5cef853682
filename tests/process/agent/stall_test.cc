// Members, the agent, or both are stopped for longer than REWIRE_SILENCE_MS and then continue. The
// leader loses no member that continues, and the job goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <functional>

#include "tests/process/agent/job.h"

namespace rewire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Duration kLongerThanSilence = milliseconds(4500);

class StallTest : public ::testing::Test {
 protected:
  StallTest() : job_(3, 4) {
    const nlohmann::json status = job_.Status();
    for (const auto& m : status["world"]["members"]) members_.push_back(m["pid"].get<pid_t>());
    agent_ = status["agent"]["pid"].get<pid_t>();
  }
  ~StallTest() override { Signal(members_, SIGCONT); }

  static void Signal(const std::vector<pid_t>& pids, int signal) {
    for (const pid_t pid : pids) kill(pid, signal);
  }
  bool Eventually(const std::function<bool(const nlohmann::json&)>& condition) {
    const Time deadline = Now() + seconds(30);
    while (Now() < deadline) {
      if (condition(job_.Status())) return true;
    }
    return false;
  }
  // Spins for `time`, while the fault lasts.
  static void Last(Duration time) {
    const Time end = Now() + time;
    while (Now() < end) {
    }
  }
  void TheJobIsWhole() {
    EXPECT_TRUE(Eventually([](const nlohmann::json& status) {
      const auto& all = status["world"]["members"];
      return std::all_of(all.begin(), all.end(), [](const auto& m) {
        return m["last_heard_ms"].template get<int>() < 900;
      });
    }));
    EXPECT_THAT(job_.World(), ElementsAre(0, 1, 2));
    EXPECT_EQ(job_.Ask("resize", {"4"}).status, 0);
    const CommandResult end = job_.Finish();
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_THAT(end.err, Not(HasSubstr("is lost")));
  }

  Job job_;
  std::vector<pid_t> members_;
  pid_t agent_ = 0;
};

TEST_F(StallTest, AllMembersStoppedForLongAreNotLost) {
  Signal(members_, SIGSTOP);
  EXPECT_TRUE(Eventually([](const nlohmann::json& status) {
    const auto& all = status["world"]["members"];
    return std::all_of(all.begin(), all.end(),
                       [](const auto& m) { return m["last_heard_ms"].template get<int>() > 4500; });
  }));
  Signal(members_, SIGCONT);
  TheJobIsWhole();
}

TEST_F(StallTest, MembersAndAgentStoppedForLongAreNotLost) {
  Signal(members_, SIGSTOP);
  kill(agent_, SIGSTOP);
  Last(kLongerThanSilence);
  kill(agent_, SIGCONT);
  Signal(members_, SIGCONT);
  TheJobIsWhole();
}

TEST_F(StallTest, AnAgentStoppedForLongLosesNobody) {
  kill(agent_, SIGSTOP);
  Last(kLongerThanSilence);
  kill(agent_, SIGCONT);
  TheJobIsWhole();
}

TEST_F(StallTest, OneThatStaysStoppedWhenTheOthersGoOnIsLost) {
  Signal(members_, SIGSTOP);
  kill(agent_, SIGSTOP);
  Last(kLongerThanSilence);
  kill(agent_, SIGCONT);
  Signal({members_[0], members_[2]}, SIGCONT);
  EXPECT_EQ(job_.Ask("wait", {"--for", "epoch=2", "--timeout", "20s"}).status, 0);
  EXPECT_THAT(job_.World(), ElementsAre(0, 2));
  // The launcher ends the process, which does not continue any more.
  const CommandResult end = job_.Finish();
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err,
              HasSubstr("[epoch 1] REWIRE WARN STEADY: member 1 is lost: it was silent for "
                        "REWIRE_SILENCE_MS"));
}

}  // namespace
}  // namespace rewire
