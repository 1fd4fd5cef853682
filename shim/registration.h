// Registered buffers, windows and PreMulSum operators of one communicator, kept so that they can be
// made again on its next generation.
//
// The application keeps the value that the generation of that moment gave (a window is dereferenced
// by kernels, so it must be the real one), except operators, which get our own number. On a later
// generation the value is translated: index in the list -> RealValues of that generation.
// RegistrationList: slow paths only, any thread, its lock is never held across a call into NCCL.
// RealValues: Get without a lock from any thread that is inside the generation.
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
  // One writer per index. False: no memory.
  [[nodiscard]] bool Set(uint32_t index, uint64_t value);
  // Sets 0 and gives the place where NCCL stores the value, perhaps later and on a thread of its
  // own. nullptr: no memory.
  [[nodiscard]] uint64_t* Reserve(uint32_t index);

 private:
  static constexpr uint32_t kChunks = 24;
  static constexpr uint32_t kFirst = 16;  // elements of chunk 0; each next one has twice as many
  struct Element {
    std::atomic<bool> set{false};
    uint64_t value = 0;  // NCCL writes it without our types
  };
  Element* Make(uint32_t index);
  std::atomic<Element*> chunks_[kChunks] = {};
};

enum class RegistrationKind : uint32_t { kBuffer, kWindow, kOperator };

struct Registration {
  RegistrationKind kind = RegistrationKind::kBuffer;
  uint32_t index = 0;   // of RealValues, never used again within a communicator
  uint64_t handle = 0;  // what the application holds
  void* address =
      nullptr;  // of the buffer or window; of the scalar of an operator in device memory
  size_t size = 0;
  int flags = 0;
  ncclDataType_t type = ncclFloat;
  ncclScalarResidence_t residence = ncclScalarHostImmediate;
  unsigned char scalar[8] = {};
};

// Operators of ours: kFirstOperator + index.
inline constexpr int kFirstOperator = 0x40000000;

class RegistrationList {
 public:
  // A new record's index; its handle is set when the real one is known (Add).
  uint32_t NextIndex() { return next_.fetch_add(1, std::memory_order_relaxed); }
  // Registration.handle is what the application is given; when another live registration of the
  // same kind has it already (memory that a retired generation gave back), a number of our own is
  // put in its place. Returns the handle.
  uint64_t Add(Registration registration) REWIRE_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<Registration> Find(RegistrationKind kind, uint64_t handle) const
      REWIRE_EXCLUDES(mutex_);
  bool Remove(RegistrationKind kind, uint64_t handle) REWIRE_EXCLUDES(mutex_);
  // A window that NCCL makes after the call that asked for it: `window` gets its handle when
  // TakeStored finds the real one, and must be valid until then.
  void AddLater(Registration registration, ncclWindow_t* window) REWIRE_EXCLUDES(mutex_);
  // NCCL has made what was asked for so far; those without a value are not supported there.
  void TakeStored(const RealValues& values) REWIRE_EXCLUDES(mutex_);
  // In the order in which they were made.
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
