// Which threads are inside which communicator, so that a generation is freed only when none is.
//
// A thread that enters puts the generation into its own slot, then looks whether it is still the
// current one. Whoever frees takes the generation out of `current` first, then makes every thread
// pass a barrier (membarrier(2)), then looks at all slots: so the entering thread pays for two
// plain stores. Where membarrier is not available (and under TSan, which does not know it) the
// entering thread pays for a full barrier instead.
//
// Slots are made at a thread's first entry, are used again after it ends, and are never freed. A
// slot's atomics are read by any thread; the rest belongs to its thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/virtual_communicator.h"

namespace rewire::shim {

struct GroupState;

struct ThreadSlot {
  std::atomic<Generation*> inside{nullptr};
  std::atomic<bool> taken{false};
  int group_depth = 0;
  GroupState* group = nullptr;  // shim/group.h; made at the thread's first group
  ThreadSlot* next = nullptr;
};

extern thread_local ThreadSlot* this_slot __attribute__((tls_model("initial-exec")));
ThreadSlot* NewSlot() noexcept;  // of this thread; slow path

inline ThreadSlot* Slot() noexcept {
  ThreadSlot* slot = this_slot;
  return slot != nullptr ? slot : NewSlot();
}

// Before the first generation is published: asks for membarrier, and for what fork() needs.
void PrepareSlots() noexcept;
// True: the kernel has membarrier; readers need no barrier of their own.
extern std::atomic<bool> cheap_readers;
// Every thread of this process passes a full barrier before this returns.
void Barrier() noexcept;
// After Barrier(): whether any thread's slot or any group holds it.
bool AnyoneInside(const Generation* generation) noexcept;
// In the child of a fork: the other threads are gone.
void ForgetOtherThreads() noexcept;
// Tests: full barriers on readers, as without membarrier; only while no thread is inside.
void UseFullBarriers(bool use) noexcept;

// Publishes "I am inside what comm's current generation is" and gives it; nullptr when there is
// none. The slot must be empty.
inline Generation* Enter(ThreadSlot* slot, const VirtualCommunicator* comm) noexcept {
  Generation* generation = comm->current.load(std::memory_order_acquire);
  while (true) {
#if !defined(__SANITIZE_THREAD__) && !defined(REWIRE_THREAD_SANITIZER)
    if (cheap_readers.load(std::memory_order_relaxed)) [[likely]] {
      slot->inside.store(generation, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      Generation* again = comm->current.load(std::memory_order_acquire);
      if (again == generation) [[likely]] {
        return generation;
      }
      generation = again;
      continue;
    }
#endif
    slot->inside.exchange(generation, std::memory_order_seq_cst);
    Generation* again = comm->current.load(std::memory_order_seq_cst);
    if (again == generation) return generation;
    generation = again;
  }
}

inline void Leave(ThreadSlot* slot) noexcept {
  slot->inside.store(nullptr, std::memory_order_release);
}

// For slow paths: inside for the lifetime of this object. Nests: an inner one of the same thread
// counts in the generation itself.
class Inside {
 public:
  explicit Inside(VirtualCommunicator* comm) noexcept;
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  // nullptr: the communicator has none.
  [[nodiscard]] Generation* generation() const { return generation_; }

 private:
  ThreadSlot* slot_;
  Generation* generation_;
  Generation* outer_;
};

}  // namespace rewire::shim
