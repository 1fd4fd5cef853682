// Whether the shim does anything at all (REWIRE_DISABLE), and whether its settings are right. Any
// thread; the environment is read once.
#pragma once

#include <atomic>

#include "reconfig/abi/nccl_types.h"

namespace rewire::shim {

enum class Mode : int { kUndecided = 0, kOn = 1, kOff = 2 };
extern std::atomic<Mode> mode;
Mode DecideMode() noexcept;

// The first line of every entry: true sends it straight to the real library.
inline bool Off() noexcept {
  const Mode now = mode.load(std::memory_order_relaxed);
  if (now == Mode::kOn) [[likely]] {
    return false;
  }
  return (now == Mode::kUndecided ? DecideMode() : now) == Mode::kOff;
}

// ncclInvalidUsage when a REWIRE_* value is wrong; its text is logged once. Unknown variables are
// warned of once. Called when a communicator is made.
ncclResult_t CheckSettings() noexcept;

}  // namespace rewire::shim
