#include "shim/preload/pool.h"

#include <pthread.h>

#include <deque>
#include <new>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/log.h"
#include "reconfig/base/mutex.h"
#include "shim/preload/thread_slot.h"

namespace rewire::shim {

namespace {

// An entry that is freed or reused after the last thread has left it.
struct Leaving {
  Generation* generation;     // nullptr: only the communicator waits
  VirtualCommunicator* comm;  // reused afterwards; nullptr: only the generation is freed
};

class Pool {
 public:
  VirtualCommunicator* Take() REWIRE_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    // The oldest free communicator is reused first, and kKeptFree stay free. A call with a handle
    // that became stale recently therefore still finds kDestroyed.
    if (free_.size() > kKeptFree) {
      VirtualCommunicator* comm = free_.front();
      free_.pop_front();
      return comm;
    }
    auto* comm = new (std::nothrow) VirtualCommunicator;
    if (comm == nullptr) return nullptr;
    comm->next_in_pool = all_.load(std::memory_order_relaxed);
    all_.store(comm, std::memory_order_release);
    return comm;
  }

  void Leave(Leaving leaving) REWIRE_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    leaving_.push_back(leaving);
    waiting_.store(static_cast<int>(leaving_.size()), std::memory_order_relaxed);
  }

  void Sweep() REWIRE_EXCLUDES(mutex_) {
    if (waiting_.load(std::memory_order_relaxed) == 0) return;
    MutexLock lock(&mutex_);
    Barrier();
    std::erase_if(leaving_, [this](const Leaving& l) REWIRE_NO_THREAD_SAFETY_ANALYSIS {
      if (l.generation != nullptr && AnyoneInside(l.generation)) return false;
      if (l.comm != nullptr && l.comm->users.load(std::memory_order_acquire) != 0) return false;
      delete l.generation;
      if (l.comm != nullptr) free_.push_back(l.comm);
      return true;
    });
    waiting_.store(static_cast<int>(leaving_.size()), std::memory_order_relaxed);
  }

  void Keep(Generation* generation) REWIRE_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    kept_.push_back(generation);
  }

  int Waiting() const { return waiting_.load(std::memory_order_relaxed); }
  VirtualCommunicator* First() const { return all_.load(std::memory_order_acquire); }

  // The lock is held during a fork, so that the child finds consistent lists.
  void Lock() REWIRE_NO_THREAD_SAFETY_ANALYSIS { mutex_.Lock(); }
  void Unlock() REWIRE_NO_THREAD_SAFETY_ANALYSIS { mutex_.Unlock(); }

 private:
  static constexpr size_t kKeptFree = 64;
  Mutex mutex_;
  std::deque<VirtualCommunicator*> free_ REWIRE_GUARDED_BY(mutex_);
  std::vector<Leaving> leaving_ REWIRE_GUARDED_BY(mutex_);
  // Never freed. The list shows a leak detector that they are not lost.
  std::vector<Generation*> kept_ REWIRE_GUARDED_BY(mutex_);
  std::atomic<int> waiting_{0};
  std::atomic<VirtualCommunicator*> all_{nullptr};
};

void HoldPool() noexcept;
void ReleasePool() noexcept;

// The pool is never destroyed: threads may still be in NCCL while the process exits.
Pool& ThePool() {
  static Pool* const pool = [] {
    pthread_atfork(HoldPool, ReleasePool, ReleasePool);
    return new Pool;
  }();
  return *pool;
}
void HoldPool() noexcept { ThePool().Lock(); }
void ReleasePool() noexcept { ThePool().Unlock(); }

// Resets all members except `users` and `next_in_pool`, which the pool needs, and the magic, which
// NewCommunicator() sets last.
void Reset(VirtualCommunicator* comm) {
  comm->current.store(nullptr, std::memory_order_relaxed);
  comm->issued.store(0, std::memory_order_relaxed);
  comm->stop_at.store(kNoCut, std::memory_order_relaxed);
  comm->last_stream.store(nullptr, std::memory_order_relaxed);
  comm->pins.store(0, std::memory_order_relaxed);
  comm->watch_capture.store(false, std::memory_order_relaxed);
  comm->told.store(Told::kNothing, std::memory_order_relaxed);
  comm->first_id = {};
  comm->present_id.store(&comm->first_id, std::memory_order_relaxed);
  comm->recipe = {};
  comm->children.store(0, std::memory_order_relaxed);
  comm->shrinks.clear();
  comm->registrations.Clear();
  for (auto& function : comm->seen) {
    for (auto& type : function) type.store(0, std::memory_order_relaxed);
  }
  delete[] comm->peers.exchange(nullptr, std::memory_order_relaxed);
  comm->peer_count.store(0, std::memory_order_relaxed);
  comm->closing.store(false, std::memory_order_relaxed);
  comm->awaits_first.store(false, std::memory_order_relaxed);
  comm->parent.store(nullptr, std::memory_order_relaxed);
}

}  // namespace

VirtualCommunicator* NewCommunicator() noexcept {
  PrepareSlots();
  Sweep();
  VirtualCommunicator* comm = ThePool().Take();
  if (comm == nullptr) return nullptr;
  Reset(comm);
  comm->magic.store(Magic::kOpen, std::memory_order_release);
  return comm;
}

void DropCommunicator(VirtualCommunicator* comm, Generation* taken) noexcept {
  comm->magic.store(Magic::kDestroyed, std::memory_order_seq_cst);
  Generation* generation = comm->current.exchange(nullptr, std::memory_order_seq_cst);
  ThePool().Leave({taken != nullptr ? taken : generation, comm});
  Sweep();
}

Generation* NewGeneration(uint64_t epoch, int ranks, int rank) noexcept {
  auto* generation = new (std::nothrow) Generation;
  if (generation == nullptr) return nullptr;
  generation->epoch = epoch;
  generation->ranks.store(ranks, std::memory_order_relaxed);
  generation->rank.store(rank, std::memory_order_relaxed);
  return generation;
}

Generation* Publish(VirtualCommunicator* comm, Generation* next) noexcept {
  return comm->current.exchange(next, std::memory_order_seq_cst);
}

bool Quiesce(Generation* generation, int64_t timeout_ms) noexcept {
  return QuiesceOthers(generation, 0, timeout_ms);
}

bool QuiesceOthers(const Generation* generation, uint64_t mine, int64_t timeout_ms) noexcept {
  const Time deadline = Now() + milliseconds(timeout_ms);
  Barrier();
  while (AnyoneInside(generation, mine)) {
    if (Now() >= deadline) return false;
    // Threads leave when their NCCL call returns. To keep leaving cheap, no waiter is woken.
    timespec pause{0, 200'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

void FreeGeneration(Generation* generation) noexcept {
  if (generation == nullptr) return;
  ThePool().Leave({generation, nullptr});
  Sweep();
}

void KeepGeneration(VirtualCommunicator* comm) noexcept { ThePool().Keep(Publish(comm, nullptr)); }

uint64_t Pledge(VirtualCommunicator* comm, uint64_t stop_at) noexcept {
  comm->stop_at.store(stop_at, std::memory_order_seq_cst);
  Barrier();
  return comm->issued.load(std::memory_order_seq_cst);
}

void Sweep() noexcept { ThePool().Sweep(); }

int Waiting() noexcept { return ThePool().Waiting(); }

bool VisitCommunicators(const std::function<bool(VirtualCommunicator*)>& visit) noexcept {
  for (VirtualCommunicator* c = ThePool().First(); c != nullptr; c = c->next_in_pool) {
    if (c->magic.load(std::memory_order_acquire) == Magic::kOpen && visit(c)) return true;
  }
  return false;
}

void ForgetCommunicators() noexcept {
  VisitCommunicators([](VirtualCommunicator* comm) {
    comm->magic.store(Magic::kOtherProcess, std::memory_order_relaxed);
    return false;
  });
}

}  // namespace rewire::shim
