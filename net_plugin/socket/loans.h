// Memory that the kernel reads while a TCP connection sends it, instead of a copy (MSG_ZEROCOPY;
// Linux, Documentation/networking/msg_zerocopy.rst): it belongs to the kernel until that says that
// it is through with it. Where it copies nevertheless, as on the way to the same machine, it says
// that, too, and nothing more is lent. One per connection, for its whole life, because the kernel
// numbers what is lent. Calls are one at a time; on() at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace rewire::net {

class Loans {
 public:
  // Less is copied in less time than it takes to hold its pages and let them go.
  static constexpr size_t kLeast = 64 << 10;

  explicit Loans(int fd);

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }
  // Nothing is lent now.
  [[nodiscard]] bool empty() const { return owners_.empty(); }
  // Before a call of send() with MSG_ZEROCOPY. Owner: TakeBack() will give it.
  void Lend(void* owner) { owners_.push_back(owner); }
  // That call has sent nothing, or a copy.
  void Undo() { owners_.pop_back(); }
  // The owners of what the kernel has let go of since, each as often as it has lent.
  std::vector<void*> TakeBack();

 private:
  const int fd_;
  std::atomic<bool> on_;
  uint32_t first_ = 0;        // the kernel's number of the first of
  std::deque<void*> owners_;  // null: taken back already
};

}  // namespace rewire::net
