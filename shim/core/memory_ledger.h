// How much device memory each communicator's generations took when they were made, and whether the
// next ones fit beside them.
//
// An epoch that changes several communicators needs the sum of their generations at once, so it is
// measured first and refused if it does not fit. Measured as the fall of free memory while one
// generation was made: other allocations of the program at that moment are in it, so the newest
// measurement replaces the older ones. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/mutex.h"
#include "reconfig/transition/world.h"

namespace rewire::shim {

class MemoryLedger {
 public:
  // free memory before and after one generation of the communicator was made (and warmed).
  void Record(const CommunicatorId& communicator, uint64_t free_before, uint64_t free_after)
      REWIRE_EXCLUDES(mutex_);
  void Forget(const CommunicatorId& communicator) REWIRE_EXCLUDES(mutex_);

  // Bytes that one more generation of each will take. One that was never measured counts like the
  // largest that was.
  [[nodiscard]] uint64_t Expected(std::span<const CommunicatorId> communicators) const
      REWIRE_EXCLUDES(mutex_);
  // kResourceExhausted, with the figures, when they do not fit into `free_bytes`.
  [[nodiscard]] absl::Status Check(std::span<const CommunicatorId> communicators,
                                   uint64_t free_bytes) const REWIRE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<CommunicatorId, uint64_t> taken_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::shim
