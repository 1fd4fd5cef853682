#include "net_plugin/socket/workers.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "reconfig/base/clock.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

size_t CountOf() { return std::clamp<size_t>(std::thread::hardware_concurrency() / 4, 1, 4); }

}  // namespace

Workers& Workers::Get() {
  static auto* const workers = new Workers;
  return *workers;
}

Workers::Workers(Duration patience) : patience_(patience), events_(epoll_create1(EPOLL_CLOEXEC)) {
  for (size_t i = 0; events_.valid() && i < CountOf(); ++i)
    threads_.emplace_back([this, i] { Run(i); });
}

uint64_t Workers::Add(int fd, uint32_t events, Work* work, size_t stream) {
  MutexLock lock(&mutex_);
  const uint64_t id = ++last_;
  entries_[id] = {fd, events, work, stream};
  epoll_event event{};
  event.events = EPOLLONESHOT;  // no events until Arm()
  event.data.u64 = id;
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event);
  return id;
}

void Workers::Arm(uint64_t id, bool now) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  // The running Drive() may end with its own Arm(), which must not replace this call.
  if (now && found->second.driving) found->second.again = true;
  ArmEntry(id, found->second, now);
}

void Workers::ArmEntry(uint64_t id, const Entry& entry, bool now) {
  epoll_event event{};
  // EPOLLOUT fires at once: a connection that only receives is always writable.
  event.events = entry.events | EPOLLONESHOT | (now ? uint32_t{EPOLLOUT} : 0);
  event.data.u64 = id;
  epoll_ctl(events_.get(), EPOLL_CTL_MOD, entry.fd, &event);
}

void Workers::Remove(uint64_t id) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  // The caller frees what Drive() uses. Drive() does not block, so the wait is short. After a stop
  // of the process, this thread may run before the worker does.
  for (RunningDeadline deadline(patience_); found->second.driving;) {
    if (deadline.Passed()) {
      REWIRE_ERROR(
          "net plugin: remove stream: fd=%d: its worker did not return within %.0f ms: the "
          "process ends, since the stream's memory is in use",
          found->second.fd, ToMilliseconds(patience_));
      abort();
    }
    idle_.WaitUntil(&mutex_, deadline.NextTurn());
  }
  entries_.erase(found);
}

void Workers::Run(size_t number) {
  pthread_setname_np(pthread_self(), ("rewire-net-" + std::to_string(number)).c_str());
  for (;;) {
    epoll_event event{};
    if (epoll_wait(events_.get(), &event, 1, -1) != 1) continue;
    const uint64_t id = event.data.u64;
    Work* work = nullptr;
    size_t stream = 0;
    {
      MutexLock lock(&mutex_);
      const auto found = entries_.find(id);
      if (found == entries_.end()) continue;
      found->second.again = found->second.driving;
      if (found->second.again) continue;
      found->second.driving = true;
      work = found->second.work;
      stream = found->second.stream;
    }
    work->Drive(stream);
    MutexLock lock(&mutex_);
    Entry& entry = entries_.at(id);
    entry.driving = false;
    if (std::exchange(entry.again, false)) ArmEntry(id, entry, true);
    idle_.NotifyAll();
  }
}

}  // namespace rewire::net
