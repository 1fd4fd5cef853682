#include "shim/core/thread_priority.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace rewire::shim {

void SetOwnNiceness(int nice) { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice); }

int OwnNiceness() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

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

int RestoreNicenessOfNewThreads(const std::set<pid_t>& before, int niceness, int* refused) {
  const int own = OwnNiceness();
  int restored = 0;
  *refused = 0;
  for (const pid_t id : ThreadIds()) {
    if (id == gettid() || before.contains(id)) continue;
    // Threads that the application made meanwhile have the application's niceness.
    if (getpriority(PRIO_PROCESS, static_cast<id_t>(id)) != own) continue;
    if (setpriority(PRIO_PROCESS, static_cast<id_t>(id), niceness) == 0) {
      ++restored;
    } else if (errno != ESRCH) {
      ++*refused;
    }
  }
  return restored;
}

}  // namespace rewire::shim
