// Removal of a stream whose worker is inside Drive().
#include "net_plugin/socket/workers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>

#include "tests/fakes/process/stopped_wait.h"

namespace rewire::net {
namespace {

class Driven : public Workers::Work {
 public:
  explicit Driven(std::function<void()> drive) : drive_(std::move(drive)) {}
  void Drive(size_t) override {
    driving_ = true;
    drive_();
  }
  void AwaitDrive() const {
    while (!driving_) std::this_thread::yield();
  }

 private:
  const std::function<void()> drive_;
  std::atomic<bool> driving_ = false;
};

// Removes a stream while `drive` runs; `begins` is called just before.
void RemoveUnder(Duration patience, const std::function<void()>& drive,
                 const std::function<void()>& begins) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  auto* const workers = new Workers(patience);
  Driven work(drive);
  const uint64_t id = workers->Add(ends[0], EPOLLIN, &work, 0);
  workers->Arm(id, true);
  work.AwaitDrive();
  begins();
  workers->Remove(id);
}

TEST(WorkersTest, ProcessStopIsNotStuckWorker) {
  StoppedWait stopped;
  const auto block = [&] { stopped.Block(); };
  const auto begin = [&] { stopped.Begin(); };
  EXPECT_EQ(stopped.Run(milliseconds(4500), [&] { RemoveUnder(seconds(4), block, begin); }), 0);
}

TEST(WorkersDeathTest, StuckWorkerEndsProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(RemoveUnder(milliseconds(1), pause, [] {}), "did not return within 1 ms");
}

}  // namespace
}  // namespace rewire::net
