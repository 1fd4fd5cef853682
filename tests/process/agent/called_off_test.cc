// The leader cancels a change after one of the joining processes has connected. The joining process
// ends, and the job goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/process/agent/job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// A job of two members that grows to four. Member 2 connects and member 3 never does, so the change
// waits for member 3 until the leader cancels the change.
class CalledOffTest : public ::testing::Test {
 protected:
  CalledOffTest()
      : job_(2, 4, {"--grace", "50ms"},
             "[ $REWIRE_MEMBER = 3 ] && exec tail -f /dev/null; exec $0 $1"),
        change_({REWIRE_COMMAND, "resize", "4", "--socket", job_.socket()}) {
    const Time deadline = Now() + seconds(20);
    while (joiner_ == 0 && Now() < deadline) {
      const nlohmann::json status = job_.Status();
      for (const auto& m : status["members"]) {
        if (m["member"] == 2 && m["state"] == "joining") joiner_ = m["pid"].get<pid_t>();
      }
      member_ = status["world"]["members"][1]["pid"].get<pid_t>();
    }
    EXPECT_NE(joiner_, 0) << "the new member did not come";
  }

  // The job makes further changes and ends without an error.
  void TheJobGoesOn() {
    EXPECT_EQ(job_.Ask("wait", {"--timeout", "20s"}).status, 0);
    for (const char* size : {"1", "3"}) {
      const CommandResult r = job_.Ask("resize", {size});
      EXPECT_EQ(r.status, 0) << r.err;
    }
    EXPECT_THAT(job_.World(), SizeIs(3));
    const CommandResult end = job_.Finish();
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_THAT(end.err, Not(HasSubstr("the job is stopped")));
    EXPECT_THAT(end.err, Not(HasSubstr("the job is over")));
  }

  Job job_;
  Background change_;
  pid_t joiner_ = 0;
  pid_t member_ = 0;
};

TEST_F(CalledOffTest, ADrainWithADeadlineGoesFirstAndTheGrowFollows) {
  const CommandResult drain = job_.Ask("drain", {"1", "--within", "60s"});
  EXPECT_EQ(drain.status, 0) << drain.err;
  EXPECT_EQ(change_.End(seconds(20)).status, 0);
  EXPECT_THAT(job_.World(), SizeIs(4));
  TheJobGoesOn();
}

TEST_F(CalledOffTest, ADeathDuringAGrowIsHealedAndTheGrowFollows) {
  kill(member_, SIGKILL);
  EXPECT_EQ(change_.End(seconds(20)).status, 0);
  EXPECT_THAT(job_.World(), SizeIs(4));
  TheJobGoesOn();
}

TEST_F(CalledOffTest, AJoinerThatDiesFailsTheGrowByName) {
  kill(joiner_, SIGKILL);
  const CommandResult end = change_.End(seconds(20));
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.err, HasSubstr("a new member was lost before it joined"));
  EXPECT_THAT(job_.World(), SizeIs(2));
  TheJobGoesOn();
}

}  // namespace
}  // namespace rewire
