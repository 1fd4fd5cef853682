// Contexts, and which one is current on a thread. Guarded by the driver's lock, save the stack of
// current contexts, which belongs to its thread.
#pragma once

#include <map>
#include <vector>

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

struct Context {
  CUcontext handle = nullptr;
  Device* device = nullptr;
  unsigned flags = 0;
  bool primary = false;
  Stream* legacy = nullptr;
  std::map<uint64_t, CUstream> per_thread;  // by the thread's number
  std::vector<Stream*> streams;             // default and destroyed ones included
  std::vector<CUcontext> peers;             // whose memory may be accessed from here
};

// The current context, or INVALID_CONTEXT (none), or CONTEXT_IS_DESTROYED.
[[nodiscard]] CUresult CurrentContext(Context** context) REWIRE_REQUIRES(driver_mutex);
// By handle; null where it is not alive.
[[nodiscard]] Context* FindContext(CUcontext handle) REWIRE_REQUIRES(driver_mutex);
[[nodiscard]] CUresult CreateContext(Device* device, unsigned flags, bool primary,
                                     Context** context) REWIRE_REQUIRES(driver_mutex);
// Lets pending work finish, then frees everything that belongs to it.
void DestroyContext(Context* context) REWIRE_REQUIRES(driver_mutex);
void WaitForContext(Context* context) REWIRE_REQUIRES(driver_mutex);
[[nodiscard]] CUstream AddStream(Context* context, StreamKind kind, int priority)
    REWIRE_REQUIRES(driver_mutex);
// Removes the handle; work that is pending still runs, and the context still waits for it.
void RemoveStream(CUstream handle) REWIRE_REQUIRES(driver_mutex);
[[nodiscard]] Stream* PerThreadStream(Context* context) REWIRE_REQUIRES(driver_mutex);
// A number of the calling thread, never used twice.
[[nodiscard]] uint64_t ThreadNumber();

// The calling thread's stack of contexts. It has no destructor, because libraries call the driver
// from exit handlers, after the thread's other variables have been destroyed.
class ThreadContexts {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] CUcontext back() const { return contexts_[size_ - 1]; }
  // False when the stack is full.
  [[nodiscard]] bool push_back(CUcontext context) {
    if (size_ == kMost) return false;
    contexts_[size_++] = context;
    return true;
  }
  void pop_back() { --size_; }

 private:
  static constexpr size_t kMost = 64;
  CUcontext contexts_[kMost];
  size_t size_;
};
ThreadContexts& ContextStack();

}  // namespace simgpu
