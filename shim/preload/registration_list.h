// The registered buffers, windows and PreMulSum operators of one communicator, and their replay on
// its next generation. For the shim's entries and ShimServices.
//
// The application keeps the value that the generation of that moment gave. A window must be the
// real value, because kernels dereference it; an operator gets a number of Rewire's own. On a later
// generation the value is translated: index in the list -> RealValues of that generation.
//
// Windows are collective. The program's thread therefore makes them right after a swap: all ranks
// have the same windows at that operation, but not at the moments of their builds. The core's
// builder thread replays the rest. The program's thread replays the rest again after the swap,
// because a pending generation may be older than the newest registrations.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/mutex.h"
#include "shim/preload/generation.h"

namespace rewire::shim {

struct VirtualCommunicator;

enum class RegistrationKind : uint32_t { kBuffer, kWindow, kOperator };

struct Registration {
  RegistrationKind kind = RegistrationKind::kBuffer;
  uint32_t index = 0;   // index in RealValues, never reused within a communicator
  uint64_t handle = 0;  // value that the application holds
  // The address of the buffer or window, or of an operator's scalar in device memory.
  void* address = nullptr;
  size_t size = 0;
  int flags = 0;
  ncclDataType_t type = ncclFloat;
  ncclScalarResidence_t residence = ncclScalarHostImmediate;
  unsigned char scalar[8] = {};
};

// The numbers of Rewire's operators begin here: kFirstOperator + index.
inline constexpr int kFirstOperator = 0x40000000;

// Thread-safe, for slow paths only. Its lock is never held across a call into NCCL.
class RegistrationList {
 public:
  // Returns a new record's index. Add stores its handle once the real value is known.
  uint32_t NextIndex() { return next_.fetch_add(1, std::memory_order_relaxed); }
  // Stores a record and returns the handle for the application: Registration.handle. If another
  // live registration of the same kind has that handle (memory that a retired generation gave
  // back), Add returns a number of Rewire's own instead.
  uint64_t Add(Registration registration) REWIRE_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<Registration> Find(RegistrationKind kind, uint64_t handle) const
      REWIRE_EXCLUDES(mutex_);
  bool Remove(RegistrationKind kind, uint64_t handle) REWIRE_EXCLUDES(mutex_);
  // Stores a window that NCCL makes after the call that asked for the window. TakeStored writes the
  // handle to *window once NCCL has made it. `window` must be valid until then.
  void AddLater(Registration registration, ncclWindow_t* window) REWIRE_EXCLUDES(mutex_);
  // Reads the values that NCCL has stored. A window without a value is not supported there.
  void TakeStored(const RealValues& values) REWIRE_EXCLUDES(mutex_);
  // Returns the records in the order of their creation.
  [[nodiscard]] std::vector<Registration> All() const REWIRE_EXCLUDES(mutex_);
  void Clear() REWIRE_EXCLUDES(mutex_);

 private:
  struct Later {
    Registration registration;
    ncclWindow_t* window;
  };
  uint64_t AddLocked(Registration registration) REWIRE_REQUIRES(mutex_);

  std::atomic<uint32_t> next_{0};
  std::atomic<bool> any_later_{false};
  mutable Mutex mutex_;
  std::vector<Later> later_ REWIRE_GUARDED_BY(mutex_);
  std::vector<Registration> list_ REWIRE_GUARDED_BY(mutex_);
};

// Both functions skip what the generation has already, and follow the application's order, which is
// the same on all ranks for windows. The first error ends the replay.
ncclResult_t ReplayLocal(VirtualCommunicator* comm, Generation* generation) noexcept;
// Returns whether ReplayAll would register a buffer or a window. An operator is a number.
bool Registers(VirtualCommunicator* comm, const Generation* generation) noexcept;
// In a group, NCCL makes the windows at the group's end.
ncclResult_t ReplayAll(VirtualCommunicator* comm, Generation* generation, int group_depth) noexcept;

}  // namespace rewire::shim
