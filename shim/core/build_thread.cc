#include "shim/core/build_thread.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace rewire::shim {

namespace {

constexpr int kNice = 15;

std::set<pid_t> ThreadIds() {
  std::set<pid_t> ids;
  DIR* dir = opendir("/proc/self/task");
  if (dir == nullptr) return ids;
  while (const dirent* entry = readdir(dir)) {
    const auto id = static_cast<pid_t>(strtol(entry->d_name, nullptr, 10));
    if (id > 0) ids.insert(id);
  }
  closedir(dir);
  return ids;
}

}  // namespace

void BuildThreads::Begin() {
  MutexLock lock(&mutex_);
  ++running_;
}

void BuildThreads::Leave() {
  MutexLock lock(&mutex_);
  ++left_;
}

void BuildThreads::End(bool left) {
  MutexLock lock(&mutex_);
  --running_;
  if (left) --left_;
  changed_.NotifyAll();
}

int BuildThreads::Left() const {
  MutexLock lock(&mutex_);
  return left_;
}

int BuildThreads::AwaitAll(Time until) {
  MutexLock lock(&mutex_);
  while (running_ > 0 && changed_.WaitUntil(&mutex_, until)) {
  }
  return running_;
}

void SetOwnNiceness(int nice) { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice); }

int OwnNiceness() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

LowPriority::LowPriority()
    : thread_(gettid()), before_(ThreadIds()), program_(OwnNiceness()), low_(program_) {}

void LowPriority::Lower() {
  MutexLock lock(&mutex_);
  SetOwnNiceness(program_ + 1);
  SetOwnNiceness(program_);
  if (OwnNiceness() == program_) SetOwnNiceness(std::max(program_, kNice));
  low_ = OwnNiceness();
}

int LowPriority::ReleaseMade() {
  MutexLock lock(&mutex_);
  return Restore(false);
}

int LowPriority::End() {
  MutexLock lock(&mutex_);
  return Restore(true);
}

int LowPriority::Restore(bool own) {
  if (low_ == program_) return 0;
  const size_t refused_before = refused_.size();
  for (const pid_t id : ThreadIds()) {
    if (id == thread_ ? !own : before_.contains(id)) continue;
    // Threads that the program made meanwhile have the program's niceness.
    if (getpriority(PRIO_PROCESS, static_cast<id_t>(id)) != low_) continue;
    if (setpriority(PRIO_PROCESS, static_cast<id_t>(id), program_) != 0 && errno != ESRCH &&
        id != thread_) {
      refused_.insert(id);
    }
  }
  return static_cast<int>(refused_.size() - refused_before);
}

}  // namespace rewire::shim
