// Keeps two threads out of NCCL with one non-blocking communicator. NCCL frees a launch that has
// ended in whichever call with the communicator finds the launch first (ncclGroupJobComplete, from
// ncclCommGetAsyncError and at the start of every operation); two calls at a time free it twice.
// The program keeps this rule for its own threads. The core polls communicators of other threads at
// a cut (shim/core/cut.cc), and these classes keep the polls out of the program's calls.
//
// Thread-safe. Never waits for more than one poll, which joins at most one thread that has ended.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace rewire::shim {

class Callers {
 public:
  void Enter() noexcept {
    // A thread that waits is counted, so that no further poll begins.
    if (count_.fetch_add(1, std::memory_order_acquire) >= 0) return;
    while (count_.load(std::memory_order_acquire) < 0) sched_yield();
  }
  void Leave() noexcept { count_.fetch_sub(1, std::memory_order_release); }
  // Returns false when a thread of the program is inside NCCL; otherwise Admit() must follow.
  [[nodiscard]] bool TryExclude() noexcept {
    int64_t none = 0;
    return count_.compare_exchange_strong(none, kPolled, std::memory_order_acquire);
  }
  void Admit() noexcept { count_.fetch_sub(kPolled, std::memory_order_release); }

 private:
  static constexpr int64_t kPolled = INT64_MIN / 2;
  std::atomic<int64_t> count_{0};  // of the program's threads; negative during a poll
};

// One call of the program. Does nothing for a blocking communicator, which the core never polls.
class Calling {
 public:
  Calling(bool blocking, Callers* callers) noexcept : callers_(blocking ? nullptr : callers) {
    if (callers_ != nullptr) [[unlikely]]
      callers_->Enter();
  }
  ~Calling() {
    if (callers_ != nullptr) [[unlikely]]
      callers_->Leave();
  }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

 private:
  Callers* const callers_;
};

}  // namespace rewire::shim
