// Device memory of this member's part of one sharded tensor: address space for the whole tensor,
// with memory for the part alone. An element's address does not depend on the part, so a part grows
// and shrinks in place. cuMemMap maps the memory in chunks; other processes may map the chunks by
// descriptor.
//
// Reach and Drop are called by Rewire's thread or the training thread, the rest by the training
// thread.
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
  // Returns whether the device can map memory in this way and share it.
  static bool SupportedBy(const Device& device);
  // For a tensor of `bytes`, of which bytes [begin, end) are this member's, zeroed.
  static absl::StatusOr<std::unique_ptr<PartMemory>> Create(const Device& device, uint64_t bytes,
                                                            uint64_t begin, uint64_t end);
  ~PartMemory();

  [[nodiscard]] CUdeviceptr at(uint64_t byte) const { return base_ + byte; }

  // Also maps memory for bytes [begin, end). The memory stays until each Reach has been matched by
  // a call of Drop or Adopt. Returns false if there is no memory.
  bool Reach(uint64_t begin, uint64_t end);
  void Drop();
  // Bytes [begin, end), which Reach() mapped, become the part.
  void Adopt(uint64_t begin, uint64_t end);
  // Frees memory outside the part, except memory that a Reach() still needs.
  void Trim();

 private:
  PartMemory(const Device& device, size_t chunk, size_t chunks)
      : device_(device), chunk_(chunk), mapped_(chunks) {}
  bool MapChunk(size_t index) REWIRE_REQUIRES(mutex_);

  const Device& device_;
  const size_t chunk_;  // bytes
  CUdeviceptr base_ = 0;

  Mutex mutex_;
  std::vector<bool> mapped_ REWIRE_GUARDED_BY(mutex_);  // index: chunk
  uint64_t begin_ REWIRE_GUARDED_BY(mutex_) = 0;
  uint64_t end_ REWIRE_GUARDED_BY(mutex_) = 0;
  int reached_ REWIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace rewire::trainer
