// The calls that Rewire's own threads make into the program, such as `allocate`. A program may end
// without rewireDetach(): its exit handlers then destroy the objects that these functions use.
// Close() is called before that, and no later call begins. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/mutex.h"

namespace rewire::elastic {

// The reason for which an ending program takes no part in a change.
[[nodiscard]] absl::Status ProgramEnding();

class ProgramCalls {
 public:
  // One call, which runs for the object's life on the thread that made the object.
  class Call {
   public:
    // calls: nullptr allows every call.
    explicit Call(ProgramCalls* calls);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    // False: the program is ending, so its function must not be called.
    [[nodiscard]] bool allowed() const { return allowed_; }

   private:
    ProgramCalls* const calls_;
    bool allowed_ = true;
  };

  // Allows no further call, and waits for the running calls of other threads until the deadline.
  // Returns whether none is left.
  bool Close(Time deadline);
  // Returns whether this thread is inside a call: the program's function has called exit().
  [[nodiscard]] static bool Inside();

 private:
  // Set before Close() gets the mutex, for which a thread with many calls competes.
  std::atomic<bool> closed_{false};
  Mutex mutex_;
  CondVar changed_;
  uint32_t running_ REWIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace rewire::elastic
