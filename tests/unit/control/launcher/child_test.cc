// Starts children and describes how they ended.
#include "reconfig/control/launcher/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "reconfig/control/launcher/member_environment.h"

namespace rewire::control {
namespace {

using ::testing::HasSubstr;

TEST(ChildTest, DescribesExitAndSignal) {
  ChildSpec spec;
  spec.environment = OwnEnvironment();
  const auto end_of = [&spec](const std::string& script) {
    spec.argv = {"sh", "-c", script};
    const absl::StatusOr<pid_t> pid = StartChild(spec);
    int status = 0;
    if (!pid.ok() || waitpid(*pid, &status, 0) != *pid) return std::string("none");
    return Describe(EndOf(status));
  };
  EXPECT_EQ(end_of("exit 0"), "exited with status 0");
  EXPECT_EQ(end_of("exit 200"), "exited with status 200");
  EXPECT_EQ(end_of("kill -KILL $$"), "was killed by signal 9 (Killed)");
  EXPECT_EQ(end_of("read x || exit 5"), "exited with status 5");  // /dev/null
}

TEST(ChildTest, StartsWithDefaultSignals) {
  sigset_t set;
  sigset_t old;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, &old);
  signal(SIGPIPE, SIG_IGN);
  ChildSpec spec;
  spec.environment = OwnEnvironment();
  spec.argv = {"sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status | grep -v 0000000000000000"};
  const absl::StatusOr<pid_t> pid = StartChild(spec);
  ASSERT_TRUE(pid.ok());
  int status = 0;
  ASSERT_EQ(waitpid(*pid, &status, 0), *pid);
  EXPECT_EQ(EndOf(status).exit_code, 1);  // the last grep found nothing else
  sigprocmask(SIG_SETMASK, &old, nullptr);
  signal(SIGPIPE, SIG_DFL);
}

TEST(ChildTest, FailedStartNamesProgramAndLeavesNoProcess) {
  ChildSpec spec;
  EXPECT_EQ(StartChild(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec.argv = {"no-such-program"};
  const auto missing = StartChild(spec);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("'no-such-program'"));
  spec.argv = {"/etc"};
  EXPECT_EQ(StartChild(spec).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

}  // namespace
}  // namespace rewire::control
