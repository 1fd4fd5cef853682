// Tracks memory that the kernel reads while a TCP connection sends it without a copy (MSG_ZEROCOPY;
// Linux, Documentation/networking/msg_zerocopy.rst). The owner must not modify the memory until the
// kernel reports completion. If the kernel reports a copy, as on loopback, no more memory is lent.
// Each connection has one Loans object for its whole life, because the kernel numbers the sends.
// Thread-compatible, except on(), which is thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace rewire::net {

class Loans {
 public:
  // A copy of fewer bytes takes less time than pinning and unpinning their pages.
  static constexpr size_t kLeast = 64 << 10;

  explicit Loans(int fd);

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }
  // True if no memory is lent.
  [[nodiscard]] bool empty() const { return owners_.empty(); }
  // Call before send() with MSG_ZEROCOPY. TakeBack() later returns `owner`.
  void Lend(void* owner) { owners_.push_back(owner); }
  // Call if that send() has sent nothing or has copied the bytes.
  void Undo() { owners_.pop_back(); }
  // Returns the owners of the loans that the kernel has released since the last call.
  std::vector<void*> TakeBack();

 private:
  const int fd_;
  std::atomic<bool> on_;
  uint32_t first_ = 0;        // the kernel's number of the first owner
  std::deque<void*> owners_;  // null: already taken back
};

}  // namespace rewire::net
