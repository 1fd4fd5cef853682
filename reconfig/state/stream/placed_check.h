// Hashes the bytes that a transition has placed in this member's memory, at the boundary, before
// the member votes for the commit. A fragment is hashed on arrival, so a difference means that
// something has written into the place since, or that the bytes never came to it. Run() is called
// from the thread that runs the transition; Cancel() is thread-safe.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/mutex.h"
#include "reconfig/state/stream/state_memory.h"
#include "reconfig/state/topo/layout.h"

namespace rewire::state {

// Bytes of a tensor with the hash that they had at their source: HashContent() at byte `offset`.
struct PlacedBytes {
  uint32_t tensor = 0;
  StateRuns place;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t content = 0;
};

class PlacedCheck {
 public:
  // Sets the names of tensors for errors.
  void SetNames(TensorNames names) { names_ = std::move(names); }
  // Allocates the resources of Run() on this device. Call from the thread that will run.
  absl::Status WarmDevice(CUcontext context) { return memory_.Warm(context); }
  // Returns kDataLoss, naming the first tensor whose bytes differ.
  absl::Status Run(const std::vector<PlacedBytes>& placed);
  // Ends Run(). When Cancel() returns, nothing is read any more.
  void Cancel();

 private:
  TensorNames names_;
  StateMemory memory_;

  Mutex reading_;  // held while memory is read
  bool cancelled_ REWIRE_GUARDED_BY(reading_) = false;
};

}  // namespace rewire::state
