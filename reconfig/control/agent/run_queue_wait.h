// Measures how long the threads of a process have waited for a processor. The agent asks about
// silent members: a member with runnable threads is alive, and its host has too few processors. A
// stopped, hanging or ended process waits for no processor. Thread-compatible.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>

#include "reconfig/base/clock.h"

namespace rewire::control {

class RunQueueWait {
 public:
  // Returns the longest time that one thread of the process has waited since the last call for this
  // process. Returns zero at the first call, and when the kernel does not provide
  // /proc/PID/task/TID/schedstat.
  Duration SinceLast(pid_t pid, Time now);
  // Forgets all other processes.
  void KeepOnly(const std::set<pid_t>& pids);

 private:
  struct Thread {
    uint64_t ran_ns = 0;
    uint64_t waited_ns = 0;  // until the thread last got a processor
    uint64_t runs = 0;
    Duration ahead{};  // wait since then that was already reported
  };
  struct Process {
    Time read{};
    std::map<pid_t, Thread> threads;
  };
  std::map<pid_t, Process> processes_;
};

}  // namespace rewire::control
