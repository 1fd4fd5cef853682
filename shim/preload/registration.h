// The registered buffers, windows and PreMulSum operators of one communicator, kept for replay on
// its next generation.
//
// The application keeps the value that the generation of that moment gave. A window must be the
// real value, because kernels dereference it; an operator gets a number of Rewire's own. On a later
// generation the value is translated: index in the list -> RealValues of that generation.
// RegistrationList: thread-safe, for slow paths only; its lock is never held across a call into
// NCCL. RealValues: threads inside the generation call Get without a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/mutex.h"

namespace rewire::shim {

// A growing array of words whose elements never move.
class RealValues {
 public:
  RealValues() = default;
  ~RealValues();
  RealValues(const RealValues&) = delete;
  RealValues& operator=(const RealValues&) = delete;

  [[nodiscard]] std::optional<uint64_t> Get(uint32_t index) const;
  // Each index has one writer. Returns false without memory.
  [[nodiscard]] bool Set(uint32_t index, uint64_t value);
  // Sets 0 and returns the place where NCCL stores the value, perhaps later and on its own thread.
  // Returns nullptr without memory.
  [[nodiscard]] uint64_t* Reserve(uint32_t index);

 private:
  static constexpr uint32_t kChunks = 24;
  static constexpr uint32_t kFirst = 16;  // elements of chunk 0; each next chunk has twice as many
  struct Element {
    std::atomic<bool> set{false};
    uint64_t value = 0;  // NCCL writes the value without atomic types
  };
  Element* Make(uint32_t index);
  std::atomic<Element*> chunks_[kChunks] = {};
};

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

}  // namespace rewire::shim
