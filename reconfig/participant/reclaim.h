// SIGTERM as a reclaim notice, for a program that asked for it by sigterm_is_reclaim.
//
// This is the project's only signal handler, an exception from "a library has no signal handlers":
// a blocked signal would stay blocked in every child of the program, also across execve(2), and
// SIGTERM would no longer end those children. The handler writes to an eventfd, which a thread
// ("rewire-term") reads. A program's own handler is called as well. execve(2) resets the handler; a
// forked child ends by SIGTERM as it would without Rewire. The destructor restores what it found.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace rewire {

class ReclaimWatch {
 public:
  // notice: called by the watch's thread at every SIGTERM. False: no member of a world could take
  // it, and SIGTERM does to the process what it would without Rewire. A second object in one
  // process does nothing.
  explicit ReclaimWatch(std::function<bool()> notice);
  ~ReclaimWatch();

  // The notices that the process's watch took cannot be followed any more: it calls `notice` again
  // if there were any. Thread-safe.
  static void Reconsider();

 private:
  void Run();

  const std::function<bool()> notice_;
  bool active_ = false;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace rewire
