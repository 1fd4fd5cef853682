// Contexts, and each thread's current context. Guarded by the driver's lock, except the stack of
// current contexts, which is owned by its thread.
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
  std::map<uint64_t, CUstream> per_thread;  // key: the thread's number
  std::vector<Stream*> streams;             // includes default and destroyed streams
  std::vector<CUcontext> peers;             // contexts whose memory this context may access
};

// Returns the current context, or INVALID_CONTEXT (none), or CONTEXT_IS_DESTROYED.
[[nodiscard]] CUresult CurrentContext(Context** context) REWIRE_REQUIRES(driver_mutex);
// Finds a context by handle; null if the context is not alive.
[[nodiscard]] Context* FindContext(CUcontext handle) REWIRE_REQUIRES(driver_mutex);
[[nodiscard]] CUresult CreateContext(Device* device, unsigned flags, bool primary,
                                     Context** context) REWIRE_REQUIRES(driver_mutex);
// Waits for pending work, then frees everything that belongs to the context.
void DestroyContext(Context* context) REWIRE_REQUIRES(driver_mutex);
void WaitForContext(Context* context) REWIRE_REQUIRES(driver_mutex);
[[nodiscard]] CUstream AddStream(Context* context, StreamKind kind, int priority)
    REWIRE_REQUIRES(driver_mutex);
// Removes the handle. Pending work still runs, and the context still waits for the work.
void RemoveStream(CUstream handle) REWIRE_REQUIRES(driver_mutex);
[[nodiscard]] Stream* PerThreadStream(Context* context) REWIRE_REQUIRES(driver_mutex);
// Returns the calling thread's number, which is never reused.
[[nodiscard]] uint64_t ThreadNumber();

// The calling thread's stack of contexts. It has no destructor, because libraries call the driver
// from exit handlers, after the thread's other variables have been destroyed.
class ThreadContexts {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] CUcontext back() const { return contexts_[size_ - 1]; }
  // Returns false if the stack is full.
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
