#include "net_plugin/verbs/idle_watch.h"

#include <sys/epoll.h>

#include <utility>

namespace rewire::net {

IdleWatch::IdleWatch(int fd, std::function<Next()> look) : look_(std::move(look)) {
  worker_ = Workers::Get().Add(fd, EPOLLIN, this, 0);
  Workers::Get().Arm(worker_);
}

IdleWatch::~IdleWatch() { Workers::Get().Remove(worker_); }

bool IdleWatch::Take(Turn turn) {
  Turn nobody = Turn::kNobody;
  return turn_.compare_exchange_strong(nobody, turn);
}

bool IdleWatch::Enter() { return Take(Turn::kCaller); }

void IdleWatch::Leave() {
  turn_ = Turn::kNobody;
  if (missed_.exchange(false)) Workers::Get().Arm(worker_);
}

void IdleWatch::Drive(size_t) {
  if (!Take(Turn::kWorker)) {
    missed_ = true;
    // Unless the caller has left just now and did not see that.
    if (!Take(Turn::kWorker)) return;
    missed_ = false;
  }
  const Next next = look_();
  turn_ = Turn::kNobody;
  if (next != Next::kNothing) Workers::Get().Arm(worker_, next == Next::kAtOnce);
}

}  // namespace rewire::net
