// SIGTERM as a reclaim notice: blocked in the thread that attaches (and in those it makes later),
// and waited for by a thread of its own ("rewire-term"). No signal handler.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace rewire {

class ReclaimWatch {
 public:
  // Blocks SIGTERM in the calling thread. notice: from the watch's thread, at every SIGTERM.
  explicit ReclaimWatch(std::function<void()> notice);
  ~ReclaimWatch();

 private:
  void Run();

  const std::function<void()> notice_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace rewire
