// std::mutex with the annotations of clang's thread-safety analysis. All locks of the project use
// this class: the distribution's absl::Mutex is not instrumented, and TSan then reports false
// races. Also the check that an object is used by its own thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "reconfig/base/clock.h"

#if defined(__clang__)
#define REWIRE_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define REWIRE_THREAD_ATTRIBUTE(x)
#endif

#define REWIRE_CAPABILITY(x) REWIRE_THREAD_ATTRIBUTE(capability(x))
#define REWIRE_SCOPED_CAPABILITY REWIRE_THREAD_ATTRIBUTE(scoped_lockable)
#define REWIRE_GUARDED_BY(x) REWIRE_THREAD_ATTRIBUTE(guarded_by(x))
#define REWIRE_PT_GUARDED_BY(x) REWIRE_THREAD_ATTRIBUTE(pt_guarded_by(x))
#define REWIRE_REQUIRES(...) REWIRE_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define REWIRE_EXCLUDES(...) REWIRE_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define REWIRE_ACQUIRE(...) REWIRE_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define REWIRE_RELEASE(...) REWIRE_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define REWIRE_NO_THREAD_SAFETY_ANALYSIS REWIRE_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace rewire {

class REWIRE_CAPABILITY("mutex") Mutex {
 public:
  void Lock() REWIRE_ACQUIRE() { mutex_.lock(); }
  void Unlock() REWIRE_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class REWIRE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) REWIRE_ACQUIRE(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() REWIRE_RELEASE() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Every wait has a deadline. Spurious wake-ups happen: wait in a loop on a condition.
class CondVar {
 public:
  // Returns false if the deadline has passed.
  bool WaitUntil(Mutex* mutex, Time deadline)
      REWIRE_REQUIRES(mutex) REWIRE_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const std::cv_status status = cond_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyOne() { cond_.notify_one(); }
  void NotifyAll() { cond_.notify_all(); }

 private:
  std::condition_variable cond_;
};

// The thread that an object belongs to, for REWIRE_DCHECK. Thread-safe.
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
