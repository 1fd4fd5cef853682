// Keeps Rewire's threads out of NCCL at the end of the process. exit() destroys the CUDA runtime
// that is linked into NCCL while threads still run, and a thread that is inside NCCL then, or
// enters it later, crashes the process. For the parts of ShimCommunicators that call NCCL on
// threads of Rewire's. The program's own calls are not kept out. Thread-safe.
#pragma once

#include <atomic>
#include <mutex>

#include "reconfig/base/clock.h"
#include "reconfig/base/mutex.h"

namespace rewire::shim {

class ExitGate {
 public:
  // kWork: ends by itself. kInterruption: brings another thread out of NCCL.
  enum class Purpose { kWork, kInterruption };

  // A stretch in which the calling thread may call NCCL.
  class Inside {
   public:
    explicit Inside(ExitGate* gate, Purpose purpose = Purpose::kWork)
        : gate_(gate->Enter(purpose) ? gate : nullptr) {}
    ~Inside() {
      if (gate_ != nullptr) gate_->Leave();
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    // False: the process is ending, and the thread must not call NCCL.
    [[nodiscard]] bool ok() const { return gate_ != nullptr; }

   private:
    ExitGate* const gate_;
  };

  // used: called when the first thread enters, and again when the first one leaves. By the second
  // call NCCL has used the CUDA runtime. Of two exit handlers the one that was registered last runs
  // first. Call before the first thread enters.
  void SetUsed(void (*used)()) { used_ = used; }
  // Lets only interruptions in from now on. Waits until no thread is inside, and then lets nothing
  // in. Returns the number of threads that are inside at the deadline; nothing enters then either.
  // A second call returns 0 at once.
  int Close(Time deadline) REWIRE_EXCLUDES(mutex_);
  // Whether Close() was called. What is not freed then is not freed any more.
  [[nodiscard]] bool Closing() const { return closing_.load(std::memory_order_acquire); }

 private:
  bool Enter(Purpose purpose) REWIRE_EXCLUDES(mutex_);
  void Leave() REWIRE_EXCLUDES(mutex_);

  void (*used_)() = [] {};
  std::once_flag entered_, left_;
  std::atomic<bool> closing_{false};
  Mutex mutex_;
  CondVar changed_;
  int inside_ REWIRE_GUARDED_BY(mutex_) = 0;
  bool closed_ REWIRE_GUARDED_BY(mutex_) = false;
};

}  // namespace rewire::shim
