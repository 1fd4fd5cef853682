// A large block of host memory that is really there once Touch() has run, in huge pages where the
// system gives them. Move-only; not thread-safe.
#pragma once

#include <cstddef>

namespace rewire {

class Block {
 public:
  Block() = default;
  ~Block();
  Block(Block&& other) noexcept { *this = static_cast<Block&&>(other); }
  Block& operator=(Block&& other) noexcept;

  // Empty when the system has no memory to give.
  static Block Of(size_t bytes);
  // The first use of a page costs more than writing it: this takes that cost now.
  void Touch();

  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace rewire
