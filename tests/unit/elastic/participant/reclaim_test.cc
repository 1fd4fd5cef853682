// SIGTERM as a reclaim notice, in the process itself and in its children.
#include "reconfig/elastic/participant/reclaim.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "reconfig/base/clock.h"

namespace rewire::elastic {
namespace {

bool Eventually(const std::function<bool()>& condition) {
  const Time deadline = Now() + seconds(20);
  while (!condition()) {
    if (Now() >= deadline) return false;
    usleep(1000);
  }
  return true;
}

// Waits for a signal. The thread sanitizer delivers none in pause().
[[noreturn]] void Wait() {
  for (;;) usleep(1000);
}

// Returns the signal that ends the child after SIGTERM; 0: the child does not end, or ends by
// itself.
int EndByTerm(pid_t child) {
  kill(child, SIGTERM);
  int status = 0;
  const bool ended = Eventually([&] { return waitpid(child, &status, WNOHANG) == child; });
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return ended && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(ReclaimWatchTest, ReportsEverySignalAndRestoresDisposition) {
  std::atomic<int> notices{0};
  {
    const ReclaimWatch watch([&] {
      ++notices;
      return true;
    });
    const ReclaimWatch second([] { return false; });  // does nothing
    for (int i = 1; i <= 3; ++i) {
      kill(getpid(), SIGTERM);
      EXPECT_TRUE(Eventually([&] { return notices == i; }));
    }
  }
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(ReclaimWatchTest, EndsProcessWhenNoticeCannotBeFollowed) {
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<bool> in_a_world{true};
    std::atomic<int> notices{0};
    const ReclaimWatch watch([&] {
      ++notices;
      return in_a_world.load();
    });
    ReclaimWatch::Reconsider();  // no notice has arrived yet
    kill(getpid(), SIGTERM);
    if (!Eventually([&] { return notices == 1; })) _exit(1);
    in_a_world = false;
    ReclaimWatch::Reconsider();
    Eventually([] { return false; });
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

TEST(ReclaimWatchTest, SigtermEndsForkedExecutedAndSpawnedChildren) {
  const ReclaimWatch watch([] { return true; });
  // The children are forked from a thread that exists during the watch, like the attached thread.
#ifndef __SANITIZE_THREAD__
  // The thread sanitizer runs no signal handler in the forked child of a process with threads.
  const pid_t forked = fork();
  if (forked == 0) Wait();
  EXPECT_EQ(EndByTerm(forked), SIGTERM);
#endif
  int execs[2];  // its end closes by the exec
  ASSERT_EQ(pipe2(execs, O_CLOEXEC), 0);
  const pid_t executed = fork();
  if (executed == 0) {
    execlp("tail", "tail", "-f", "/dev/null", nullptr);
    _exit(127);
  }
  close(execs[1]);
  char none;
  EXPECT_EQ(read(execs[0], &none, 1), 0);
  close(execs[0]);
  EXPECT_EQ(EndByTerm(executed), SIGTERM);
  pid_t spawned = 0;
  const char* const argv[] = {"tail", "-f", "/dev/null", nullptr};
  ASSERT_EQ(posix_spawnp(&spawned, "tail", nullptr, nullptr, const_cast<char**>(argv), environ), 0);
  EXPECT_EQ(EndByTerm(spawned), SIGTERM);
}

#ifndef __SANITIZE_THREAD__
TEST(ReclaimWatchTest, AForkedChildThatEndsItsWatchGivesTheParentNoNotice) {
  std::atomic<int> notices{0};
  auto watch = std::make_unique<ReclaimWatch>([&] {
    ++notices;
    return true;
  });
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      watch.reset();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  kill(getpid(), SIGTERM);
  EXPECT_TRUE(Eventually([&] { return notices >= 1; }));
  EXPECT_EQ(notices, 1);
}
#endif

std::atomic<int> calls{0};

TEST(ReclaimWatchTest, CallsProgramsHandler) {
  struct sigaction theirs = {};
  theirs.sa_handler = [](int) { ++calls; };
  struct sigaction old = {};
  sigaction(SIGTERM, &theirs, &old);
  {
    std::atomic<int> notices{0};
    const ReclaimWatch watch([&] {
      ++notices;
      return false;  // the program's handler decides
    });
    kill(getpid(), SIGTERM);
    EXPECT_TRUE(Eventually([&] { return notices == 1 && calls == 1; }));
  }
  struct sigaction now = {};
  sigaction(SIGTERM, &old, &now);
  EXPECT_EQ(now.sa_handler, theirs.sa_handler);
}

TEST(ReclaimWatchTest, SigtermEndsProcessOutsideWorld) {
  const pid_t child = fork();
  if (child == 0) {
    const ReclaimWatch watch([] { return false; });
    kill(getpid(), SIGTERM);
    Wait();
  }
  int status = 0;
  EXPECT_TRUE(Eventually([&] { return waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

}  // namespace
}  // namespace rewire::elastic
