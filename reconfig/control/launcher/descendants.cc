#include "reconfig/control/launcher/descendants.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "reconfig/base/log.h"

namespace rewire::control {
namespace {

pid_t ParentOf(const char* pid) {
  std::string text;
  std::getline(std::ifstream(std::string("/proc/") + pid + "/stat"), text);
  // The format is "PID (NAME) STATE PARENT", and NAME may contain brackets.
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos || text.size() < name_end + 4) return 0;
  return static_cast<pid_t>(strtol(text.c_str() + name_end + 4, nullptr, 10));
}

std::vector<pid_t> Children() {
  std::vector<pid_t> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  while (const dirent* entry = proc == nullptr ? nullptr : readdir(proc.get())) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (ParentOf(entry->d_name) == getpid()) {
      out.push_back(static_cast<pid_t>(strtol(entry->d_name, nullptr, 10)));
    }
  }
  return out;
}

}  // namespace

void AdoptDescendants() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    REWIRE_WARN("prctl(PR_SET_CHILD_SUBREAPER): %s: processes that members start may outlive them",
                strerror(errno));
  }
}

void ReapAdopted(const std::set<pid_t>& others) {
  for (;;) {
    siginfo_t info{};
    const int rc = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
    if (rc != 0 || info.si_pid == 0 || others.contains(info.si_pid)) return;
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

bool KillDescendants(const std::set<pid_t>& spared, Time deadline) {
  // Only children are signalled, because the process id of an unreaped child cannot be reused. The
  // children of a killed child become this process's children, so each pass is one generation
  // deeper.
  for (int pause = 0;; pause = std::min(pause + 1, 20)) {
    bool left = false;
    for (const pid_t child : Children()) {
      if (spared.contains(child)) continue;
      left = true;
      kill(child, SIGKILL);
      waitpid(child, nullptr, WNOHANG);
    }
    if (!left) return true;
    if (Now() >= deadline) return false;
    poll(nullptr, 0, pause);
  }
}

}  // namespace rewire::control
