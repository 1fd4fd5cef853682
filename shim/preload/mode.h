// Reports whether the shim is off (REWIRE_DISABLE) and whether its settings are valid. For all
// entries. Thread-safe; the environment is read once.
#pragma once

#include <atomic>

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

enum class Mode : int { kUndecided = 0, kOn = 1, kOff = 2 };
extern std::atomic<Mode> mode;
Mode DecideMode() noexcept;

// The first check of every entry: true sends the call straight to the real library.
inline bool Off() noexcept {
  const Mode now = mode.load(std::memory_order_relaxed);
  if (now == Mode::kOn) [[likely]] {
    return false;
  }
  return (now == Mode::kUndecided ? DecideMode() : now) == Mode::kOff;
}

// Returns ncclInvalidUsage when a REWIRE_* value is wrong, and logs the error once. Warns once of
// unknown variables. Called when a communicator is made.
ncclResult_t CheckSettings() noexcept;

}  // namespace rewire::shim
