// Turns at a connection: never two owners at once, and no event is missed.
#include "net_plugin/verbs/background.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"
#include "tests/unit/net_plugin/hang_guard.h"

namespace rewire::net {
namespace {

// A test that exceeds this time hangs.

class WatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    here_ = UniqueFd(fds[0]);
    there_ = UniqueFd(fds[1]);
  }
  void Say() const {
    const Time deadline = Now() + kHangGuard;
    while (write(there_.get(), "x", 1) != 1) ASSERT_LT(Now(), deadline);
  }
  // Reads one byte, on the thread that has the turn.
  bool Hear() {
    char byte = 0;
    const bool heard = read(here_.get(), &byte, 1) == 1;
    heard_ += heard ? 1 : 0;
    total_ = heard_;
    return heard;
  }
  bool AllHeard(int said) const {
    const Time deadline = Now() + kHangGuard;
    while (total_ != said && Now() < deadline) std::this_thread::yield();
    return total_ == said;
  }

  UniqueFd here_;
  UniqueFd there_;
  int heard_ = 0;  // owned by the thread that has the turn
  std::atomic<int> total_{0};
};

TEST_F(WatchTest, WorkerLooksOutsideTheCallersTurn) {
  const auto watch = WatchByWorkers(here_.get(), [this] {
    Hear();
    return Watch::Next::kReadable;
  });
  Say();
  Say();
  EXPECT_TRUE(AllHeard(2));
}

TEST_F(WatchTest, LooksAfterCallersTurnAtMissedEvents) {
  const auto watch = WatchByWorkers(here_.get(), [this] {
    Hear();
    return Watch::Next::kReadable;
  });
  ASSERT_TRUE(watch->Enter());
  Say();
  // A worker may have run by now or not; both are right.
  EXPECT_EQ(heard_, 0);
  watch->Leave(false);
  EXPECT_TRUE(AllHeard(1));
}

TEST_F(WatchTest, LooksAgainAtOnceOnRequest) {
  std::atomic<int> looks = 0;
  const auto watch = WatchByWorkers(here_.get(), [&] {
    Hear();
    return ++looks < 100 ? Watch::Next::kAtOnce : Watch::Next::kNothing;
  });
  Say();
  const Time deadline = Now() + kHangGuard;
  while (looks < 100 && Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(looks, 100);
}

TEST_F(WatchTest, LooksAfterLeaveWithoutEvent) {
  std::atomic<int> looks = 0;
  const auto watch = WatchByWorkers(here_.get(), [&] {
    ++looks;
    return Watch::Next::kReadable;
  });
  const auto looked = [&](int times) {
    const Time deadline = Now() + kHangGuard;
    while (looks < times && Now() < deadline) std::this_thread::yield();
    return looks >= times;
  };
  ASSERT_TRUE(watch->Enter());
  watch->Leave(true);
  EXPECT_TRUE(looked(1));
  watch->Waker()();
  EXPECT_TRUE(looked(2));
}

// This look has already read the event that the doorbell announces.
TEST_F(WatchTest, WakeUpDuringLookCausesAnotherLook) {
  std::function<void()> waker;
  std::atomic<int> looks = 0;
  const auto watch = WatchByWorkers(here_.get(), [&] {
    if (looks++ == 0) waker();
    return Watch::Next::kReadable;
  });
  waker = watch->Waker();
  ASSERT_TRUE(watch->Enter());
  watch->Leave(true);
  const Time deadline = Now() + kHangGuard;
  while (looks < 2 && Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(looks, 2);
}

TEST_F(WatchTest, WakerMayOutliveWatch) {
  auto watch = WatchByWorkers(here_.get(), [] { return Watch::Next::kReadable; });
  const std::function<void()> waker = watch->Waker();
  watch.reset();
  waker();
}

TEST_F(WatchTest, RunsOneLookAtATime) {
  constexpr int kSaid = 5000;
  const auto watch = WatchByWorkers(here_.get(), [this] {
    Hear();
    return Watch::Next::kReadable;
  });
  std::thread other([this] {
    for (int i = 0; i < kSaid; ++i) Say();
  });
  for (int turn = 0; turn < kSaid; ++turn) {
    if (!watch->Enter()) continue;
    Hear();
    watch->Leave(false);
  }
  other.join();
  EXPECT_TRUE(AllHeard(kSaid));
}

// Runs in a child, which gives up root's privilege to have more threads than the limit.
TEST(BackgroundTest, CallerWorksWhereNoThreadCanStart) {
  // The child runs this test alone, so that the queues have no threads yet.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto child = [] {
    const rlimit none = {0, 0};
    bool right = setrlimit(RLIMIT_NPROC, &none) == 0 && (getuid() != 0 || setuid(65534) == 0);
    int done = 0;
    RunInBackground([&] { ++done; });
    RunCopy([&] { ++done; });
    _exit(right && done == 2 ? 0 : 1);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace rewire::net
