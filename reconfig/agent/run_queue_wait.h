// RunQueueWait measures how long the threads of a process have waited for a processor. The agent
// asks for silent members: a member with runnable threads lives, and its host has too few
// processors. A process that was stopped, hangs or has ended waits for no processor.
// Thread-compatible.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>

#include "reconfig/base/clock.h"

namespace rewire {

class RunQueueWait {
 public:
  // The longest time for which one thread of the process has waited since the last call for this
  // process. Zero at the first call, and where the kernel does not count (/proc/PID/task/TID/
  // schedstat is missing).
  Duration SinceLast(pid_t pid, Time now);
  // Forgets all other processes.
  void KeepOnly(const std::set<pid_t>& pids);

 private:
  struct Thread {
    uint64_t ran_ns = 0;
    uint64_t waited_ns = 0;  // until the thread last got a processor
    uint64_t runs = 0;
    Duration ahead{};  // waited since then, as far as it was told
  };
  struct Process {
    Time read{};
    std::map<pid_t, Thread> threads;
  };
  std::map<pid_t, Process> processes_;
};

}  // namespace rewire
