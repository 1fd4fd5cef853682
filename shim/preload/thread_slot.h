// Records which threads are inside which communicator, so that a generation is freed only when no
// thread is inside. For the shim's entries and pool.cc.
//
// A thread that enters stores the generation into its own slot, then checks that the generation is
// still current. A thread that frees takes the generation out of `current`, makes every thread pass
// a barrier (membarrier(2)), and then reads all slots. An entering thread thus pays for two plain
// stores. Without membarrier (or under TSan, which lacks it) an entering thread pays for a full
// barrier.
//
// A slot is made at a thread's first entry, is reused after the thread ends, and is never freed.
// Any thread reads a slot's atomics; the other members are owned by the slot's thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

struct GroupState;

struct ThreadSlot {
  std::atomic<Generation*> inside{nullptr};
  std::atomic<bool> taken{false};
  int group_depth = 0;
  GroupState* group = nullptr;  // see shim/preload/group.h; made at the thread's first group
  ThreadSlot* next = nullptr;
};

extern thread_local ThreadSlot* this_slot __attribute__((tls_model("initial-exec")));
ThreadSlot* NewSlot() noexcept;  // the calling thread's slot; slow path

inline ThreadSlot* Slot() noexcept {
  ThreadSlot* slot = this_slot;
  return slot != nullptr ? slot : NewSlot();
}

// Called before the first generation is published: registers membarrier and the fork handler.
void PrepareSlots() noexcept;
// True: the kernel has membarrier, so readers need no barrier.
extern std::atomic<bool> cheap_readers;
// Makes every thread of this process pass a full barrier before the call returns.
void Barrier() noexcept;
// Call Barrier() first. Returns whether any thread's slot or any group holds the generation. `mine`
// is the caller's own count in Generation::fixed, which does not matter.
bool AnyoneInside(const Generation* generation, uint64_t mine = 0) noexcept;
// Empties the slots of all other threads, which do not exist in the child of a fork.
void ForgetOtherThreads() noexcept;
// For tests: readers use full barriers, as without membarrier. Call only while no thread is inside.
void UseFullBarriers(bool use) noexcept;

// Publishes that this thread is inside comm's current generation, and returns that generation
// (nullptr: comm has none). The slot must be empty.
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

// Leaves the slot at its end, also when a cancelled thread unwinds.
class Leaving {
 public:
  explicit Leaving(ThreadSlot* slot) noexcept : slot_(slot) {}
  ~Leaving() { Leave(slot_); }
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

 private:
  ThreadSlot* const slot_;
};

// For slow paths: the thread is inside while this object exists. Objects of one thread may nest; an
// inner object moves the outer generation's count into the generation itself.
class Inside {
 public:
  explicit Inside(VirtualCommunicator* comm) noexcept;
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  // Returns nullptr when the communicator has no generation.
  [[nodiscard]] Generation* generation() const { return generation_; }

 private:
  ThreadSlot* slot_;
  Generation* generation_;
  Generation* outer_;
};

}  // namespace rewire::shim
