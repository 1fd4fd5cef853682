// One real NCCL communicator, which serves a virtual communicator, and the data that belongs to it
// alone: its real values of registrations, and the threads that call NCCL with it.
//
// Owned by the preloaded library, which makes, publishes and frees generations (pool.h). The core
// does the same by ShimServices (core_abi.h) alone, and changes only members marked [core]. This
// file uses libc and libstdc++'s headers only.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

// Keeps two threads out of NCCL with one non-blocking communicator. NCCL frees a launch that has
// ended in whichever call with the communicator finds the launch first (ncclGroupJobComplete, from
// ncclCommGetAsyncError and at the start of every operation); two calls at a time free it twice.
// The program keeps this rule for its own threads. The core polls the communicator at its cut
// (shim/core/cut.h), and this class keeps the polls out of the calls of the program's other
// threads.
//
// Thread-safe. Never waits for more than one poll, which joins at most one thread that has ended.
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

// A growing array of words whose elements never move. Thread-safe: each index has one writer, and
// threads inside the generation call Get without a lock.
class RealValues {
 public:
  RealValues() = default;
  ~RealValues();
  RealValues(const RealValues&) = delete;
  RealValues& operator=(const RealValues&) = delete;

  [[nodiscard]] std::optional<uint64_t> Get(uint32_t index) const;
  // Returns false without memory.
  [[nodiscard]] bool Set(uint32_t index, uint64_t value);
  // Sets 0 and returns the place where NCCL stores the value, perhaps later and on its own thread.
  // Returns nullptr without memory.
  [[nodiscard]] uint64_t* Reserve(uint32_t index);

 private:
  static constexpr uint32_t kChunks = 24;
  static constexpr uint32_t kFirst = 16;  // elements of chunk 0; each next chunk has twice as many
  struct Element {
    std::atomic<bool> set{false};
    uint64_t value = 0;  // NCCL writes the value without atomic types
  };
  Element* Make(uint32_t index);
  std::atomic<Element*> chunks_[kChunks] = {};
};

enum class GenerationState : uint32_t {
  kOpen = 0,
  kAborted = 1,  // a peer was lost: every call gives ncclRemoteError
  kClosed = 2,   // this member has left the communicator: every call gives ncclInvalidUsage
};

struct Generation {
  // For a split, NCCL stores the communicator here at some later time and from its own thread.
  ncclComm_t real = nullptr;
  std::atomic<GenerationState> state{GenerationState::kOpen};  // [core]
  std::atomic<int> ranks{-1};                                  // -1: not known yet (split)
  std::atomic<int> rank{-1};
  std::atomic<int> device{-1};
  uint64_t epoch = 0;  // set before the generation is published
  // The number of groups of threads that have fixed this generation; see thread_slot.h.
  std::atomic<uint64_t> fixed{0};
  mutable Callers callers;  // of a non-blocking communicator
  // Real values of the registrations, windows and operators, by RegistrationList index. Empty in a
  // generation whose values are all the values that the application was given.
  RealValues values;

  // NCCL writes `real` without atomic types, so this function reads `real` with an atomic builtin.
  [[nodiscard]] ncclComm_t Real() const { return __atomic_load_n(&real, __ATOMIC_ACQUIRE); }
};

}  // namespace rewire::shim
