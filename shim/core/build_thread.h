// The threads on which Builder builds generations: their number, also of those that were left
// inside NCCL, and their priority. For Builder and EpochBuild.
#pragma once

#include <sys/types.h>

#include <set>

#include "reconfig/base/clock.h"
#include "reconfig/base/mutex.h"

namespace rewire::shim {

// Counts one builder's threads. A thread that was left inside NCCL may outlive the builder, so each
// thread holds this object by shared_ptr. Thread-safe.
class BuildThreads {
 public:
  void Begin() REWIRE_EXCLUDES(mutex_);
  // A thread was left inside NCCL. The thread still runs.
  void Leave() REWIRE_EXCLUDES(mutex_);
  // left: the ending thread was left before.
  void End(bool left) REWIRE_EXCLUDES(mutex_);
  [[nodiscard]] int Left() const REWIRE_EXCLUDES(mutex_);
  // Waits until no thread runs, at most until `until`. Returns the number that still run.
  int AwaitAll(Time until) REWIRE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  int running_ REWIRE_GUARDED_BY(mutex_) = 0;
  int left_ REWIRE_GUARDED_BY(mutex_) = 0;
};

// Sets and gets the niceness of the calling thread alone.
void SetOwnNiceness(int nice);
int OwnNiceness();

// Lowers the priority of a build's thread, so that the build does not disturb training.
//
// Niceness is inherited: the service and progress threads that NCCL starts from that thread would
// stay slow until they end, so they get the program's niceness back. Linux only. Thread-safe.
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
