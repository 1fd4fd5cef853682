// The one real NCCL library of this process: its path, its functions by their pnccl* names, and
// whether all calls go straight to it. For the shim's entries. Thread-safe.
//
// Found and loaded at the first call that needs the library, from any thread; constant afterwards.
// The members of RealNccl are the functions of shim/gen/nccl_functions.txt without their prefix
// (real->AllReduce). After Real() no member is nullptr. A function that the library lacks logs its
// name and the library's version and returns ncclInvalidUsage. Without a library, every function
// logs the searched places and returns ncclSystemError.
#pragma once

#include <atomic>

#include "shim/preload/nccl_api_types.h"

namespace rewire::shim {

struct RealNccl {
#include "rewire_real_nccl_members.inc"
  int version = 0;          // the value of ncclGetVersion; 0: no library
  const char* path = "";    // path of the loaded file
  bool was_loaded = false;  // the program had loaded the file before

  // Takes a name without prefix: Has("CommRevoke").
  [[nodiscard]] bool Has(const char* name) const;
  // Returns whether ncclCommAbort in a group sets the abort flags at once and the end of the group
  // frees. Checked in the sources of 2.22.3, 2.24.3, 2.26.5, 2.27.7, 2.28.9 and 2.30.7; a later
  // library may free at once.
  [[nodiscard]] bool AbortFreesAtGroupEnd() const { return version >= 22203 && version < 23100; }
};

// Loads the library at the first call. Never returns nullptr.
const RealNccl* Real() noexcept;

// Puts the library into the process's global scope if an object that was loaded later calls a
// function that is not in the table (unknown_functions.h). Thread-safe; slow.
void ShareWithNewObjects() noexcept;

// Equals *Real(), for calls on a virtual communicator: its creation has loaded the library.
extern RealNccl real_functions;
inline const RealNccl& Functions() noexcept { return real_functions; }

// Whether REWIRE_DISABLE turns the shim off. The environment is read once.
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

}  // namespace rewire::shim
