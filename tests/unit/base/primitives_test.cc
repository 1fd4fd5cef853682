// UniqueFd, CondVar, OwnerThread and the status macros: basic parts that all code uses.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <thread>

#include "reconfig/base/mutex.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesOnceAndMoves) {
  int raw = -1;
  {
    UniqueFd a(open("/dev/null", O_RDONLY | O_CLOEXEC));
    raw = a.get();
    ASSERT_TRUE(a.valid());
    UniqueFd b(std::move(a));
    EXPECT_FALSE(a.valid());  // NOLINT(bugprone-use-after-move): what a moved-from one promises
    EXPECT_TRUE(IsOpen(raw));
    UniqueFd c(b.release());
    EXPECT_TRUE(IsOpen(raw));
  }
  EXPECT_FALSE(IsOpen(raw));
}

TEST(CondVar, ReportsPassedDeadline) {
  Mutex mutex;
  CondVar cond;
  MutexLock lock(&mutex);
  EXPECT_FALSE(cond.WaitUntil(&mutex, Now() - milliseconds(1)));
}

TEST(CondVar, WakesAWaiter) {
  Mutex mutex;
  CondVar cond;
  bool ready = false;
  std::thread other([&] {
    MutexLock lock(&mutex);
    ready = true;
    cond.NotifyAll();
  });
  {
    MutexLock lock(&mutex);
    const Time deadline = Now() + seconds(20);
    while (!ready && cond.WaitUntil(&mutex, deadline)) {
    }
    EXPECT_TRUE(ready);
  }
  other.join();
}

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError("odd");
  return n / 2;
}

absl::StatusOr<int> Quarter(int n) {
  REWIRE_ASSIGN_OR_RETURN(const int half, Half(n));
  REWIRE_RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(StatusMacros, ReturnTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(7).status().message(), "odd");
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

TEST(OwnerThreadTest, IsTheThreadThatTook) {
  OwnerThread owner;
  EXPECT_FALSE(owner.IsThisThread());
  std::thread([&] {
    owner.Take();
    EXPECT_TRUE(owner.IsThisThread());
  }).join();
  EXPECT_FALSE(owner.IsThisThread());
}

}  // namespace
}  // namespace rewire
