#include "shim/core/thread_priority.h"

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

void SetOwnNiceness(int nice) { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice); }

int OwnNiceness() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

LowPriority::LowPriority()
    : thread_(gettid()), before_(ThreadIds()), program_(OwnNiceness()), low_(program_) {
  SetOwnNiceness(program_ + 1);
  SetOwnNiceness(program_);
  if (OwnNiceness() != program_) {
    low_ = OwnNiceness();
    return;
  }
  low_ = std::max(program_, kNice);
  SetOwnNiceness(low_);
}

int LowPriority::Restore(bool own) const {
  if (low_ == program_) return 0;
  int refused = 0;
  for (const pid_t id : ThreadIds()) {
    if (id == thread_ ? !own : before_.contains(id)) continue;
    // Threads that the program made meanwhile have the program's niceness.
    if (getpriority(PRIO_PROCESS, static_cast<id_t>(id)) != low_) continue;
    if (setpriority(PRIO_PROCESS, static_cast<id_t>(id), program_) != 0 && errno != ESRCH) {
      ++refused;
    }
  }
  return refused;
}

}  // namespace rewire::shim
