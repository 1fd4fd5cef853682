// The thread that an object belongs to, for REWIRE_DCHECK. Thread-safe.
#pragma once

#include <atomic>
#include <thread>

namespace rewire {

class OwnerThread {
 public:
  // Makes the calling thread the owner.
  void Take() { id_.store(std::this_thread::get_id(), std::memory_order_relaxed); }
  [[nodiscard]] bool IsThisThread() const {
    return id_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

 private:
  std::atomic<std::thread::id> id_{};  // of no thread before Take()
};

}  // namespace rewire
