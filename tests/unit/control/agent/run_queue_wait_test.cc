// Measures how long a process waits for a processor. A process whose threads share a processor
// waits; a stopped process does not.
#include "reconfig/control/agent/run_queue_wait.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace rewire::control {
namespace {

// Runs a child process with three threads that never sleep, on one processor.
class RunQueueWaitTest : public testing::Test {
 protected:
  RunQueueWaitTest() : pid_(fork()) {
    if (pid_ != 0) return;
    cpu_set_t mine, one;
    sched_getaffinity(0, sizeof(mine), &mine);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &mine)) ++cpu;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    std::vector<std::thread> threads;
    const std::atomic<bool> forever = true;
    const auto spin = [&] {
      while (forever.load()) {
      }
    };
    for (int i = 0; i < 2; ++i) threads.emplace_back(spin);
    spin();
  }
  ~RunQueueWaitTest() override {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // Returns the sum of what SinceLast() returns within `time`.
  Duration Over(Duration time) {
    Duration sum{};
    for (const Time end = Now() + time; Now() < end;) {
      const Time turn = Now() + milliseconds(20);
      while (Now() < turn) std::this_thread::yield();
      sum += wait_.SinceLast(pid_, Now());
    }
    return sum;
  }

  RunQueueWait wait_;
  const pid_t pid_;
};

TEST_F(RunQueueWaitTest, CountsWaitOfThreadsThatShareAProcessor) {
  Duration waited{};
  Duration looked{};
  while (waited < milliseconds(200) && looked < seconds(30)) {
    waited += Over(milliseconds(200));
    looked += milliseconds(200);
  }
  EXPECT_GE(waited, milliseconds(200));
  EXPECT_LE(waited, looked + seconds(1));
}

TEST_F(RunQueueWaitTest, ReportsNoWaitOfStoppedProcess) {
  Over(milliseconds(100));
  kill(pid_, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
  // waitpid() may return before the last thread has left its processor.
  Over(milliseconds(100));
  EXPECT_EQ(Over(milliseconds(300)), Duration{});
  kill(pid_, SIGCONT);
}

TEST_F(RunQueueWaitTest, ReportsZeroAtFirstCallAndForMissingProcess) {
  EXPECT_EQ(wait_.SinceLast(pid_, Now()), Duration{});
  wait_.KeepOnly({});
  EXPECT_EQ(wait_.SinceLast(pid_, Now()), Duration{});
  EXPECT_EQ(wait_.SinceLast(0x7fffffff, Now()), Duration{});
  EXPECT_EQ(wait_.SinceLast(0x7fffffff, Now()), Duration{});
}

}  // namespace
}  // namespace rewire::control
