#include "shim/preload/thread_slot.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "reconfig/base/check.h"
#include "shim/preload/core_loader.h"
#include "shim/preload/group.h"
#include "shim/preload/pool.h"

namespace rewire::shim {

thread_local ThreadSlot* this_slot __attribute__((tls_model("initial-exec"))) = nullptr;
std::atomic<bool> cheap_readers{false};

namespace {

std::atomic<ThreadSlot*> slots{nullptr};
std::atomic<bool> full_barriers{false};

int Membarrier(int command) noexcept {
  return static_cast<int>(syscall(__NR_membarrier, command, 0, 0));
}

// Runs once per process. pthread_once keeps its state over a fork, which is right here: the child
// has the key and the fork handler.
pthread_key_t key;
void OnThreadEnd(void* slot) noexcept {
  auto* ending = static_cast<ThreadSlot*>(slot);
  AbandonGroup(ending);
  this_slot = nullptr;
  ending->inside.store(nullptr, std::memory_order_release);
  ending->taken.store(false, std::memory_order_release);
}

void OnForkInChild() noexcept {
  ForgetOtherThreads();
  ForgetCommunicators();
  ForgetCore();
}

void PrepareOnce() noexcept {
  pthread_key_create(&key, OnThreadEnd);
  pthread_atfork(nullptr, nullptr, OnForkInChild);
}
pthread_once_t prepared = PTHREAD_ONCE_INIT;

ThreadSlot* Take(ThreadSlot* slot) noexcept {
  slot->group_depth = 0;
  this_slot = slot;
  pthread_setspecific(key, slot);
  return slot;
}

}  // namespace

ThreadSlot* NewSlot() noexcept {
  pthread_once(&prepared, PrepareOnce);
  for (ThreadSlot* s = slots.load(std::memory_order_acquire); s != nullptr; s = s->next) {
    bool free = false;
    if (s->taken.compare_exchange_strong(free, true, std::memory_order_acquire)) return Take(s);
  }
  auto* slot = new ThreadSlot;
  slot->taken.store(true, std::memory_order_relaxed);
  slot->next = slots.load(std::memory_order_relaxed);
  while (!slots.compare_exchange_weak(slot->next, slot, std::memory_order_seq_cst)) {
  }
  return Take(slot);
}

void PrepareSlots() noexcept {
  pthread_once(&prepared, PrepareOnce);
  const bool available = Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  cheap_readers.store(available && !full_barriers.load(std::memory_order_relaxed),
                      std::memory_order_seq_cst);
}

void UseFullBarriers(bool use) noexcept {
  for (ThreadSlot* s = slots.load(std::memory_order_acquire); s != nullptr; s = s->next) {
    REWIRE_DCHECK(s->inside.load(std::memory_order_relaxed) == nullptr);
  }
  full_barriers.store(use, std::memory_order_relaxed);
  PrepareSlots();
}

void Barrier() noexcept {
  if (!cheap_readers.load(std::memory_order_relaxed)) return;  // readers have their own barrier
  if (Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
  // A process can lose its registration, so register again. GLOBAL needs none and waits for every
  // CPU.
  Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  if (Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) Membarrier(MEMBARRIER_CMD_GLOBAL);
}

bool AnyoneInside(const Generation* generation, uint64_t mine) noexcept {
  // Read the slots first: a group counts in the generation before it leaves its slot.
  for (ThreadSlot* s = slots.load(std::memory_order_seq_cst); s != nullptr; s = s->next) {
    if (s->inside.load(std::memory_order_seq_cst) == generation) return true;
  }
  return generation->fixed.load(std::memory_order_seq_cst) > mine;
}

void ForgetOtherThreads() noexcept {
  for (ThreadSlot* s = slots.load(std::memory_order_acquire); s != nullptr; s = s->next) {
    s->inside.store(nullptr, std::memory_order_relaxed);
    s->group_depth = 0;
    if (s->group != nullptr) ForgetGroup(s->group);
    if (s != this_slot) s->taken.store(false, std::memory_order_relaxed);
  }
}

Inside::Inside(VirtualCommunicator* comm) noexcept
    : slot_(Slot()), outer_(slot_->inside.load(std::memory_order_relaxed)) {
  // The outer generation stays protected while the slot is used for the inner generation.
  if (outer_ != nullptr) outer_->fixed.fetch_add(1, std::memory_order_seq_cst);
  generation_ = Enter(slot_, comm);
}

Inside::~Inside() {
  slot_->inside.store(outer_, std::memory_order_seq_cst);
  if (outer_ != nullptr) outer_->fixed.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace rewire::shim
