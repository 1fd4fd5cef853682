#include "shim/core/build_thread.h"

#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

TEST(BuildThreadsTest, CountsThreadsThatWereLeftUntilTheyEnd) {
  BuildThreads threads;
  EXPECT_EQ(threads.AwaitAll(Now()), 0);
  threads.Begin();
  threads.Begin();
  threads.Leave();
  EXPECT_EQ(threads.Left(), 1);
  threads.End(false);
  EXPECT_EQ(threads.Left(), 1);
  EXPECT_EQ(threads.AwaitAll(Now()), 1);
  std::thread ending([&] { threads.End(true); });
  EXPECT_EQ(threads.AwaitAll(Now() + seconds(20)), 0);
  ending.join();
  EXPECT_EQ(threads.Left(), 0);
}

using LowPriorityTest = Stage;
TEST_F(LowPriorityTest, ThreadsThatNcclMakesGetTheProgramsNicenessBack) {
  std::thread builder([] {
    const int base = OwnNiceness();
    LowPriority priority;
    priority.Lower();
    if (!MayRaisePriority()) {
      EXPECT_EQ(OwnNiceness(), base + 1);
      return;
    }
    ASSERT_EQ(OwnNiceness(), 15);
    std::atomic<bool> stop{false};
    std::atomic<pid_t> id{0};
    std::thread child([&] {
      id.store(gettid());
      while (!stop.load()) std::this_thread::yield();
    });
    EXPECT_TRUE(Eventually([&] { return id.load() != 0; }));
    const auto niceness = [](pid_t thread) {
      return getpriority(PRIO_PROCESS, static_cast<id_t>(thread));
    };
    EXPECT_EQ(niceness(id.load()), 15);
    EXPECT_EQ(priority.ReleaseMade(), 0);
    EXPECT_EQ(niceness(id.load()), base);
    EXPECT_EQ(OwnNiceness(), 15);
    EXPECT_EQ(priority.End(), 0);
    EXPECT_EQ(OwnNiceness(), base);
    stop.store(true);
    child.join();
  });
  builder.join();
}

}  // namespace
}  // namespace rewire::shim
