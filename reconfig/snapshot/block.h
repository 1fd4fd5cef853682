// A large block of host memory. Move-only; not thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "reconfig/base/unique_fd.h"

namespace rewire {

class Block {
 public:
  Block() = default;
  ~Block();
  Block(Block&& other) noexcept { *this = static_cast<Block&&>(other); }
  Block& operator=(Block&& other) noexcept;

  // Empty when the system has no memory to give. In huge pages where it gives those.
  static Block Of(size_t bytes);
  // In a memory file: another process of the node can map it, and then has it when this one is
  // gone.
  static Block Shared(size_t bytes);
  // The memory file behind a descriptor of another process, to be read. Empty when it cannot be
  // had, or has fewer bytes.
  static Block MapOf(pid_t pid, int fd, size_t bytes);

  // The first use of a page costs more than writing it: this takes that cost now.
  void Touch();

  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] int fd() const { return fd_.get(); }  // of shared memory
  [[nodiscard]] bool writable() const { return writable_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  bool writable_ = true;
  UniqueFd fd_;
};

}  // namespace rewire
