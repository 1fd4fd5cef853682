// Takes SIGTERM as a reclaim notice, for a program that asked for this by sigterm_is_reclaim.
//
// This is the project's only signal handler, an exception from "a library has no signal handlers".
// A blocked signal would stay blocked in every child of the program, also across execve(2), and
// SIGTERM would no longer end those children. The handler writes to an eventfd, which a thread
// ("rewire-term") reads. A program's own handler is also called. execve(2) resets the handler;
// SIGTERM ends a forked child as it would without Rewire. The destructor restores the previous
// handler; in a forked child the destructor has no effect on the parent.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace rewire::elastic {

class ReclaimWatch {
 public:
  // notice: called by the watch's thread at every SIGTERM. When `notice` returns false (no member
  // of a world could take the notice), SIGTERM acts on the process as it would without Rewire. A
  // second object in one process does nothing.
  explicit ReclaimWatch(std::function<bool()> notice);
  ~ReclaimWatch();

  // Calls `notice` again if earlier notices were taken, because no agent can follow them any more.
  // Thread-safe.
  static void Reconsider();

 private:
  void Run();

  const std::function<bool()> notice_;
  bool active_ = false;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace rewire::elastic
