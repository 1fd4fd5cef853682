// The wait for SIGTERM; see reclaim.h.
#include "reconfig/participant/reclaim.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace rewire {
namespace {

sigset_t OnlyTerm() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

ReclaimWatch::ReclaimWatch(std::function<void()> notice) : notice_(std::move(notice)) {
  const sigset_t set = OnlyTerm();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Run(); });
}

ReclaimWatch::~ReclaimWatch() {
  stop_ = true;
  thread_.join();
}

void ReclaimWatch::Run() {
  pthread_setname_np(pthread_self(), "rewire-term");
  const sigset_t set = OnlyTerm();
  const timespec slice = {0, 50 * 1000 * 1000};
  while (!stop_) {
    if (sigtimedwait(&set, nullptr, &slice) == SIGTERM) notice_();
  }
}

}  // namespace rewire
