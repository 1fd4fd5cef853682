#include "net_plugin/verbs/background.h"

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <system_error>
#include <utility>

#include "net_plugin/socket/workers.h"
#include "reconfig/base/task_queue.h"

namespace rewire::net {
namespace {

// Enter() costs the caller one atomic operation, and Leave() two and sometimes one Arm().
class WorkersWatch final : public Watch, private Workers::Work {
 public:
  WorkersWatch(int fd, Look look) : look_(std::move(look)) {
    worker_ = Workers::Get().Add(fd, EPOLLIN, this, 0);
    Workers::Get().Arm(worker_);
  }
  ~WorkersWatch() override { Workers::Get().Remove(worker_); }

  bool Enter() override { return Take(Turn::kCaller); }

  void Leave(bool at_once) override {
    turn_ = Turn::kNobody;
    // Arms with `now` in both cases: a worker may have done so meanwhile, and the last call wins.
    if (missed_.exchange(false) || at_once) Workers::Get().Arm(worker_, true);
  }

  std::function<void()> Waker() const override {
    return [worker = worker_] { Workers::Get().Arm(worker, true); };
  }

 private:
  enum class Turn { kNobody, kCaller, kWorker };

  bool Take(Turn turn) {
    Turn nobody = Turn::kNobody;
    return turn_.compare_exchange_strong(nobody, turn);
  }

  void Drive(size_t) override {
    if (!Take(Turn::kWorker)) {
      missed_ = true;
      // Tries again, because the caller may have left without having seen `missed_`.
      if (!Take(Turn::kWorker)) return;
      missed_ = false;
    }
    const Next next = look_();
    // Arms within the worker's turn, so that a later Arm() of the caller wins.
    if (next != Next::kNothing) Workers::Get().Arm(worker_, next == Next::kAtOnce);
    turn_ = Turn::kNobody;
  }

  const Look look_;
  std::atomic<Turn> turn_{Turn::kNobody};
  std::atomic<bool> missed_{false};  // a worker found the turn taken and returned without arming
  uint64_t worker_ = 0;
};

}  // namespace

std::unique_ptr<Watch> WatchByWorkers(int fd, Watch::Look look) {
  if (!Workers::Get().ok()) return nullptr;
  return std::make_unique<WorkersWatch>(fd, std::move(look));
}

namespace {

// In a process that may have no more threads, the caller does the work.
void PostOrRun(TaskQueue* queue, const std::function<void()>& work) {
  try {
    queue->Post(work);
  } catch (const std::system_error&) {
    work();
  }
}

}  // namespace

// The queues are never destroyed, because a connection may end at the process's exit.

void RunInBackground(std::function<void()> work) {
  // Several threads, so that work that waits for one peer does not delay work for other peers.
  static auto* const queue = new TaskQueue("rewire-net-join", 4);
  PostOrRun(queue, work);
}

void RunCopy(std::function<void()> work) {
  static auto* const queue = new TaskQueue("rewire-net-copy");
  PostOrRun(queue, work);
}

}  // namespace rewire::net
