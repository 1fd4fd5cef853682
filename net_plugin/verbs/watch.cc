#include "net_plugin/verbs/watch.h"

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "net_plugin/socket/workers.h"

namespace rewire::net {
namespace {

// Turns cost the caller an atomic operation each.
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
    // Always at once: a worker may have armed the descriptor so since, and the last word counts.
    if (missed_.exchange(false) || at_once) Workers::Get().Arm(worker_, true);
  }

  std::function<void()> Bell() const override {
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
      // Unless the caller has left just now and did not see that.
      if (!Take(Turn::kWorker)) return;
      missed_ = false;
    }
    const Next next = look_();
    // In its turn: what the caller arms behind it stays.
    if (next != Next::kNothing) Workers::Get().Arm(worker_, next == Next::kAtOnce);
    turn_ = Turn::kNobody;
  }

  const Look look_;
  std::atomic<Turn> turn_{Turn::kNobody};
  std::atomic<bool> missed_{false};  // a worker came in the caller's turn, and waits for nothing
  uint64_t worker_ = 0;
};

}  // namespace

std::unique_ptr<Watch> WatchByWorkers(int fd, Watch::Look look) {
  if (!Workers::Get().ok()) return nullptr;
  return std::make_unique<WorkersWatch>(fd, std::move(look));
}

}  // namespace rewire::net
