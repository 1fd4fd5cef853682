// One large block of host memory: private, in a memory file that another process of the node can
// map, or mapped from another process. For SnapshotSlots.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "reconfig/base/unique_fd.h"

namespace rewire::state {

// Move-only. Thread-compatible.
class Block {
 public:
  Block() = default;
  ~Block();
  Block(Block&& other) noexcept { *this = static_cast<Block&&>(other); }
  Block& operator=(Block&& other) noexcept;

  // Allocates private memory, with huge pages when available. Returns an empty block when the
  // system has no memory.
  static Block Of(size_t bytes);
  // Allocates a memory file, which another process of the node can map. That process keeps the
  // memory when this process ends.
  static Block Shared(size_t bytes);
  // Maps, for reading, the memory file of a descriptor in another process. Returns an empty block
  // when the file cannot be opened or has fewer bytes.
  static Block MapOf(pid_t pid, int fd, size_t bytes);

  // Makes the block larger. The present pages stay, which are cheaper than new ones; the address
  // may change. Returns false, without effect, when the system has no memory or the block is
  // mapped.
  bool Grow(size_t bytes);
  // Writes each page once, because the first use of a page costs more than a later write.
  void Touch();

  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] int fd() const { return fd_.get(); }  // valid for shared and mapped memory
  [[nodiscard]] bool writable() const { return writable_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  bool writable_ = true;
  UniqueFd fd_;
};

}  // namespace rewire::state
