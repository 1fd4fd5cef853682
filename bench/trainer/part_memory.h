// Device memory of this member's part of one sharded tensor: address space for the whole tensor,
// with memory behind the part alone. Every element has one address whatever the part is, so a part
// grows and shrinks where it lies. cuMemMap does it, in chunks; others may map them by descriptors.
//
// Reach and Drop from Rewire's thread or the training thread, the rest from the training thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/trainer/device.h"
#include "reconfig/base/mutex.h"

namespace rewire::trainer {

class PartMemory {
 public:
  // Whether the device maps memory so, and shares it.
  static bool SupportedBy(const Device& device);
  // For a tensor of `bytes`, of which bytes [begin, end) are this member's, zeroed.
  static absl::StatusOr<std::unique_ptr<PartMemory>> Create(const Device& device, uint64_t bytes,
                                                            uint64_t begin, uint64_t end);
  ~PartMemory();

  [[nodiscard]] CUdeviceptr at(uint64_t byte) const { return base_ + byte; }

  // Has memory behind bytes [begin, end), too, until as many calls of Drop or Adopt have come as of
  // Reach. False: there is none.
  bool Reach(uint64_t begin, uint64_t end);
  void Drop();
  // Bytes [begin, end), which were reached, are the part from here on.
  void Adopt(uint64_t begin, uint64_t end);
  // Gives back what lies outside the part, unless somebody has reached for more.
  void Trim();

 private:
  PartMemory(const Device& device, size_t chunk, size_t chunks)
      : device_(device), chunk_(chunk), mapped_(chunks) {}
  bool MapChunk(size_t index) REWIRE_REQUIRES(mutex_);

  const Device& device_;
  const size_t chunk_;  // bytes
  CUdeviceptr base_ = 0;

  Mutex mutex_;
  std::vector<bool> mapped_ REWIRE_GUARDED_BY(mutex_);  // by chunk
  uint64_t begin_ REWIRE_GUARDED_BY(mutex_) = 0;
  uint64_t end_ REWIRE_GUARDED_BY(mutex_) = 0;
  int reached_ REWIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace rewire::trainer
