// The order of tasks, tasks that wait, and tasks that have not begun when the queue ends.
#include "reconfig/base/task_queue.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <system_error>
#include <vector>

namespace rewire {
namespace {

// A test that takes longer than this hangs.
constexpr auto kHangGuard = seconds(30);

bool Ends(std::promise<void>* promise) {
  return promise->get_future().wait_for(kHangGuard) == std::future_status::ready;
}

TEST(TaskQueueTest, RunsTasksInTheOrderOfTheirTimes) {
  std::vector<int> order;
  std::promise<void> last;
  {
    TaskQueue queue("rw-test");
    const Time now = Now();
    queue.PostAt(now + milliseconds(20), [&] { order.push_back(2); });
    queue.Post([&] { order.push_back(1); });
    queue.PostAt(now + milliseconds(30), [&] {
      order.push_back(3);
      last.set_value();
    });
    queue.PostAt(now + seconds(1000), [&] { order.push_back(4); });
    EXPECT_TRUE(Ends(&last));
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(TaskQueueTest, WaitingTaskDoesNotDelayOthersOnSeveralThreads) {
  std::promise<void> second;
  bool in_time = false;
  TaskQueue queue("rw-test", 2);
  std::promise<void> first;
  queue.Post([&] {
    in_time = Ends(&second);
    first.set_value();
  });
  queue.Post([&] { second.set_value(); });
  EXPECT_TRUE(Ends(&first));
  EXPECT_TRUE(in_time);
}

TEST(TaskQueueTest, OneThreadRunsOneTaskAtATime) {
  std::vector<int> order;
  std::promise<void> last;
  {
    TaskQueue queue("rw-test");
    for (int i = 0; i < 100; ++i) queue.Post([&, i] { order.push_back(i); });
    queue.Post([&] { last.set_value(); });
    EXPECT_TRUE(Ends(&last));
  }
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(TaskQueueTest, BlockedTaskDoesNotDelayTheTimeOfAnother) {
  TaskQueue queue("rw-test", 2);
  for (int i = 0; i < 20; ++i) {
    std::promise<void> due;
    std::promise<void> blocked;
    bool in_time = false;
    queue.PostAt(Now() + milliseconds(1), [&] { due.set_value(); });
    queue.Post([&] {
      in_time = Ends(&due);
      blocked.set_value();
    });
    ASSERT_TRUE(Ends(&blocked));
    EXPECT_TRUE(in_time);
  }
}

// Runs in a child, which gives up root's privilege to have more threads than the limit.
TEST(TaskQueueTest, ProcessWithoutMoreThreadsKeepsItsTasks) {
  const auto child = [] {
    TaskQueue queue("rw-test", 2);
    std::promise<void> begun, held, last;
    queue.Post([&] {
      begun.set_value();
      (void)Ends(&held);
    });
    bool right = Ends(&begun);
    const rlimit none = {0, 0};
    right = setrlimit(RLIMIT_NPROC, &none) == 0 && (getuid() != 0 || setuid(65534) == 0) && right;
    queue.Post([&] { last.set_value(); });  // no second thread can start
    held.set_value();
    right = Ends(&last) && right;
    bool refused = false;
    try {
      TaskQueue("rw-none").Post([] {});
    } catch (const std::system_error&) {
      refused = true;
    }
    _exit(right && refused ? 0 : 1);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace rewire
