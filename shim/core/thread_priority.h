// Lowers the priority of a build's thread, so that the build does not disturb training.
//
// Niceness is inherited: the service and progress threads that NCCL starts from that thread would
// stay slow for ever, so they get the program's niceness back. Linux only. Thread-safe.
#pragma once

#include <sys/types.h>

#include <set>

namespace rewire::shim {

// Sets and gets the niceness of the calling thread alone.
void SetOwnNiceness(int nice);
int OwnNiceness();

class LowPriority {
 public:
  // Lowers the priority of the calling thread, if the thread may raise it again.
  LowPriority();
  // Gives the program's niceness to all threads that the thread has made. Raising a priority needs
  // RLIMIT_NICE or CAP_SYS_NICE: returns the number of threads that kept theirs.
  int ReleaseMade() const { return Restore(false); }
  // Gives the program's niceness to the thread itself also.
  int End() const { return Restore(true); }

 private:
  int Restore(bool own) const;

  const pid_t thread_;
  const std::set<pid_t> before_;  // the threads of the process at the beginning
  const int program_;             // niceness
  int low_;                       // niceness; equal to program_: nothing was lowered
};

}  // namespace rewire::shim
