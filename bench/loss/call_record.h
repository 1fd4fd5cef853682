// The calls of one lane: finds the call in which the lane was at the time of the fault, and the
// first call that returned an error. Owned by the lane's thread.
#pragma once

#include <cstdint>
#include <string>

#include "bench/loss/fault_page.h"

namespace rewire::bench {

// The places of a lane's thread. A call on a non-blocking communicator includes the polls with
// ncclCommGetAsyncError until the communicator has left ncclInProgress.
enum class CallKind {
  kCompute,     // outside NCCL
  kRendezvous,  // waits for another rank's unique id, outside NCCL
  kInit,
  kSplit,
  kOperation,
  kSynchronize,  // cuStreamSynchronize
  kQuery,        // cuStreamQuery and ncclCommGetAsyncError until the stream has ended
  kIdlePoll,     // ncclCommGetAsyncError on an idle communicator
  kFinalize,
  kDestroy
};
[[nodiscard]] const char* NameOf(CallKind kind);

// Returns CLOCK_MONOTONIC in nanoseconds, the controller's clock.
[[nodiscard]] int64_t MonotonicNow();

class CallRecord {
 public:
  explicit CallRecord(const FaultPage* page) : page_(page) {}

  // The thread enters a place, and leaves the one before.
  void Enter(CallKind kind, bool blocking);
  // The lane ends, with the text of the first error or, without one, an empty text.
  void End(std::string error);
  // The lane has destroyed or aborted its communicators.
  void CleanedUp() { cleaned_ = MonotonicNow(); }
  [[nodiscard]] bool HasFault() const { return page_->FaultAt() != 0; }
  // Returns one JSON object.
  [[nodiscard]] std::string Text() const;

 private:
  struct Place {
    CallKind kind = CallKind::kCompute;
    bool blocking = true;
    int64_t since = 0;
  };
  void Leave(int64_t now);

  const FaultPage* const page_;
  Place now_;
  Place at_fault_;
  int64_t left_ = 0;  // when the thread left at_fault_; 0: not yet
  Place last_;
  int64_t ended_ = 0, cleaned_ = 0;
  std::string error_;
};

}  // namespace rewire::bench
