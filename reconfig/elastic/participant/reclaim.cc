// SIGTERM as a reclaim notice; see reclaim.h.
#include "reconfig/elastic/participant/reclaim.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "reconfig/base/log.h"

namespace rewire::elastic {
namespace {

// State that the handler reads. The descriptor is made once and never closed: a handler may run
// late.
std::atomic<bool> taken{false};
std::atomic<int> event{-1};
std::atomic<bool> noticed{false};  // a SIGTERM was taken as a notice
std::atomic<pid_t> owner{0};       // 0: SIGTERM acts as it did before
struct sigaction before = {};

bool ByDefault() { return (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL; }

void CallProgram(int signal, siginfo_t* info, void* context) {
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  }
}

void EndByDefault(int signal) {
  struct sigaction none = {};
  none.sa_handler = SIG_DFL;
  sigaction(signal, &none, nullptr);
  kill(getpid(), signal);
}

void OnTerm(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  // A forked child has no thread of Rewire.
  if (owner.load() == getpid()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(event.load(), &one, sizeof one);
  } else if (ByDefault()) {
    EndByDefault(signal);
  }
  CallProgram(signal, info, context);
  errno = error;
}

void Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(event.load(), &one, sizeof one);
}

}  // namespace

void ReclaimWatch::Reconsider() {
  if (noticed.load() && owner.load() == getpid()) Wake();
}

ReclaimWatch::ReclaimWatch(std::function<bool()> notice) : notice_(std::move(notice)) {
  if (taken.exchange(true)) return;
  if (event.load() < 0) event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  sigaction(SIGTERM, nullptr, &before);
  struct sigaction ours = {};
  ours.sa_sigaction = OnTerm;
  ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  owner = getpid();
  if (event.load() < 0 || sigaction(SIGTERM, &ours, nullptr) != 0) {
    REWIRE_ERROR(
        "attach: sigterm_is_reclaim=1: the handler of SIGTERM could not be installed: SIGTERM "
        "ends the process");
    owner = 0;
    taken = false;
    return;
  }
  active_ = true;
  thread_ = std::thread([this] { Run(); });
}

ReclaimWatch::~ReclaimWatch() {
  if (!active_) return;
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnTerm) {
    sigaction(SIGTERM, &before, nullptr);
  }
  stop_ = true;
  if (owner.exchange(0) == getpid()) {
    Wake();
    thread_.join();
  } else {
    // A forked child shares the descriptor, and its write would be a notice in the parent.
    thread_.detach();
  }
  noticed = false;
  taken = false;
}

void ReclaimWatch::Run() {
  pthread_setname_np(pthread_self(), "rewire-term");
  while (!stop_) {
    pollfd p{event.load(), POLLIN, 0};
    poll(&p, 1, 60000);
    uint64_t count = 0;
    if (read(event.load(), &count, sizeof count) != ssize_t{sizeof count} || stop_) continue;
    // The program's own handler has been called already, and an ignored signal stays ignored.
    noticed = true;  // set before the call, because Reconsider() may come at once
    if (!notice_() && ByDefault()) EndByDefault(SIGTERM);
  }
}

}  // namespace rewire::elastic
