// Records how much device memory each communicator's generations took, and checks whether the next
// generations fit beside them. For ShimCommunicators and Builder. Thread-safe.
//
// An epoch that changes several communicators needs the sum of their generations at once. The
// change is refused before it begins if the measured ones do not fit, and during the build if the
// next one does not. The measure is the fall of free memory while one generation was made. Other
// allocations of the program at that moment are included, so the newest measurement replaces the
// older ones.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/mutex.h"
#include "reconfig/world/world.h"

namespace rewire::shim {

class MemoryLedger {
 public:
  // The program makes a communicator's first generation. That of its first communicator includes
  // what NCCL takes once for all, so it says nothing about other communicators.
  enum class Maker : uint8_t { kProgram, kBuilder };

  // Takes the free memory before and after one generation was made (and warmed).
  void Record(const CommunicatorId& communicator, Maker maker, uint64_t free_before,
              uint64_t free_after) REWIRE_EXCLUDES(mutex_);
  void Forget(const CommunicatorId& communicator) REWIRE_EXCLUDES(mutex_);

  // Returns the bytes that one more generation of each will take, in the order of building. A
  // communicator without a measurement counts only as the first, like the builder's largest: the
  // program may allocate during a build, and no single measurement says much about many others. Ask
  // again before each build.
  [[nodiscard]] uint64_t Expected(std::span<const CommunicatorId> communicators) const
      REWIRE_EXCLUDES(mutex_);
  // Returns kResourceExhausted, with figures, if the generations do not fit into `free_bytes`.
  [[nodiscard]] absl::Status Check(std::span<const CommunicatorId> communicators,
                                   uint64_t free_bytes) const REWIRE_EXCLUDES(mutex_);

 private:
  struct Taken {
    Maker maker = Maker::kProgram;
    uint64_t bytes = 0;
  };

  mutable Mutex mutex_;
  std::map<CommunicatorId, Taken> taken_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::shim
