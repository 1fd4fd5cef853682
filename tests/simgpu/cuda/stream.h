// A stream: a queue and a thread that runs it in order. All members are guarded by the driver's
// lock, which is not held while an operation's work runs. Work that is only a marker (an event
// record, a wait) and has nothing before it is done at once, by the caller.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <thread>

#include "tests/simgpu/cuda/capture.h"
#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

// `clock`: virtual time at which the operation will have ended, which its work may put off.
using Work = std::function<void(uint64_t* clock)>;

struct Operation {
  Work work;                     // may be empty
  uint64_t cost = 0;             // in virtual time, ns
  std::vector<MarkerRef> after;  // passed before the work starts
  bool kernel = false;           // takes one of the device's slots
  MarkerRef done;                // set by Enqueue
  MarkerRef begun;               // set by Enqueue; null without a hardware queue to leave
};

enum class StreamKind { kLegacy, kBlocking, kNonBlocking };

class Stream {
 public:
  Stream(Context* context, Device* device, StreamKind kind, int priority, uint64_t id);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // In order behind everything before it, and by the legacy stream's rules with the others of the
  // context. The marker is passed when the operation has been done.
  MarkerRef Enqueue(Operation operation) REWIRE_REQUIRES(driver_mutex);
  // The stream's virtual time: when what has been done in it ended. Moved forward by the setter.
  [[nodiscard]] uint64_t clock() const { return clock_; }
  void AdvanceClock(uint64_t at_least) { clock_ = std::max(clock_, at_least); }
  // No further work; the thread ends when the queue is empty.
  void Close() REWIRE_REQUIRES(driver_mutex);
  [[nodiscard]] bool finished() const { return finished_; }
  // The marker of the last operation, null where none is pending.
  [[nodiscard]] MarkerRef last() const {
    return last_ != nullptr && !last_->done ? last_ : nullptr;
  }

  Context* const context;
  Device* const device;
  const StreamKind kind;
  const int priority;
  const uint64_t id;
  Capture capture;

 private:
  void Run();
  void RunFront() REWIRE_REQUIRES(driver_mutex);
  [[nodiscard]] bool Ready(const Operation& operation) const REWIRE_REQUIRES(driver_mutex);
  // When an operation whose turn it is can begin, in virtual time.
  [[nodiscard]] uint64_t Start(const Operation& operation) const REWIRE_REQUIRES(driver_mutex);

  std::deque<Operation> queue_;
  MarkerRef last_;
  CondVar wake_;
  std::thread thread_;  // started by the first operation that needs it
  uint64_t clock_ = 0;
  bool closing_ = false;
  bool finished_ = true;
};

// The stream of a handle, default streams included, and whether work may be put into it.
[[nodiscard]] CUresult FindStream(CUstream handle, Stream** stream) REWIRE_REQUIRES(driver_mutex);
[[nodiscard]] CUresult FindStreamForWork(CUstream handle, Stream** stream)
    REWIRE_REQUIRES(driver_mutex);
// Joins the threads of destroyed streams that have ended.
void JoinRetired() REWIRE_REQUIRES(driver_mutex);
// Where allocations serialise with kernels: waits for those that run now.
void WaitForRunningKernels(Device* device) REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
