// Lowers the priority of a build's thread, so that the build does not disturb training.
//
// Niceness is inherited: the service and progress threads that NCCL starts from that thread would
// stay slow for ever, so they get the program's niceness back. Linux only. Thread-safe.
#pragma once

#include <sys/types.h>

#include <set>

#include "reconfig/base/mutex.h"

namespace rewire::shim {

// Sets and gets the niceness of the calling thread alone.
void SetOwnNiceness(int nice);
int OwnNiceness();

class LowPriority {
 public:
  // For the calling thread. Changes nothing.
  LowPriority();
  // Lowers the priority of that thread, on that thread. Without RLIMIT_NICE or CAP_SYS_NICE a
  // thread may not raise its priority again, and the niceness grows by 1 only.
  void Lower() REWIRE_EXCLUDES(mutex_);
  // Gives the program's niceness to all threads that the thread has made. Returns the number of
  // threads that may not have it, each once. A thread that the program itself has given the same
  // low priority meanwhile cannot be distinguished.
  int ReleaseMade() REWIRE_EXCLUDES(mutex_);
  // Does the same, and gives the program's niceness to the thread itself. On any thread.
  int End() REWIRE_EXCLUDES(mutex_);

 private:
  int Restore(bool own) REWIRE_REQUIRES(mutex_);

  const pid_t thread_;
  const std::set<pid_t> before_;  // the threads of the process at the beginning
  const int program_;             // niceness
  Mutex mutex_;
  int low_ REWIRE_GUARDED_BY(mutex_);  // niceness; equal to program_: nothing is lowered
  std::set<pid_t> refused_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::shim
