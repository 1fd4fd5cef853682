// A stream: a queue and a thread that runs the queue in order. The driver's lock guards all members
// and is not held while an operation's work runs. The caller itself performs work that is only a
// marker (an event record, a wait) if the queue is empty.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <thread>

#include "tests/simgpu/cuda/capture.h"
#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

// `clock`: virtual end time of the operation, which the work may postpone.
using Work = std::function<void(uint64_t* clock)>;

struct Operation {
  Work work;                     // may be empty
  uint64_t cost = 0;             // virtual ns
  std::vector<MarkerRef> after;  // markers that must be passed before the work starts
  bool kernel = false;           // takes one of the device's slots
  MarkerRef done;                // set by Enqueue
  MarkerRef begun;               // set by Enqueue; null without a limited hardware queue
};

enum class StreamKind { kLegacy, kBlocking, kNonBlocking };

class Stream {
 public:
  Stream(Context* context, Device* device, StreamKind kind, int priority, uint64_t id);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Enqueues after everything in the stream, and by the legacy stream's rules with the context's
  // other streams. The returned marker is passed when the operation has completed. While the stream
  // captures, the operation is dropped, and its marker is passed.
  MarkerRef Enqueue(Operation operation) REWIRE_REQUIRES(driver_mutex);
  // The stream's virtual time, at which its last completed work ended. The setter only advances it.
  [[nodiscard]] uint64_t clock() const { return clock_; }
  void AdvanceClock(uint64_t at_least) { clock_ = std::max(clock_, at_least); }
  // Accepts no further work; the thread ends when the queue is empty.
  void Close() REWIRE_REQUIRES(driver_mutex);
  [[nodiscard]] bool finished() const { return finished_; }
  // The marker of the last operation, or null if none is pending.
  [[nodiscard]] MarkerRef last() const {
    return last_ != nullptr && !last_->done ? last_ : nullptr;
  }

  Context* const context;
  Device* const device;
  const StreamKind kind;
  const int priority;
  const uint64_t id;
  std::shared_ptr<Capture> capture;  // nullptr, or ended: none (CaptureOf)

 private:
  void Run();
  void RunFront() REWIRE_REQUIRES(driver_mutex);
  [[nodiscard]] bool Ready(const Operation& operation) const REWIRE_REQUIRES(driver_mutex);
  // Returns the virtual time at which the operation at the head of the queue can begin.
  [[nodiscard]] uint64_t Start(const Operation& operation) const REWIRE_REQUIRES(driver_mutex);

  std::deque<Operation> queue_;
  MarkerRef last_;
  CondVar wake_;
  std::thread thread_;  // started by the first operation that needs it
  uint64_t clock_ = 0;
  bool closing_ = false;
  bool finished_ = true;
};

// Returns the stream of a handle, default streams included, if work may be put into the stream.
[[nodiscard]] CUresult FindStream(CUstream handle, Stream** stream) REWIRE_REQUIRES(driver_mutex);
[[nodiscard]] CUresult FindStreamForWork(CUstream handle, Stream** stream)
    REWIRE_REQUIRES(driver_mutex);
// The same if the caller may wait for the stream.
[[nodiscard]] CUresult FindStreamForWait(CUstream handle, Stream** stream)
    REWIRE_REQUIRES(driver_mutex);
// Joins the finished threads of destroyed streams.
void JoinRetired() REWIRE_REQUIRES(driver_mutex);
// Waits for the kernels that run now, if allocations serialise with kernels.
void WaitForRunningKernels(Device* device) REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
