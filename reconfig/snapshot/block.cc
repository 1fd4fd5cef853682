// Host memory for snapshots; see block.h.
#include "reconfig/snapshot/block.h"

#include <sys/mman.h>

#include <utility>

namespace rewire {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

Block Block::Of(size_t bytes) {
  Block block;
  if (bytes == 0) return block;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return block;
  madvise(data, bytes, MADV_HUGEPAGE);  // a hint: where it is refused there are small pages
  block.data_ = static_cast<char*>(data);
  block.size_ = bytes;
  return block;
}

Block::~Block() {
  if (data_ != nullptr) munmap(data_, size_);
}

Block& Block::operator=(Block&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void Block::Touch() {
  for (size_t at = 0; at < size_; at += kPage) {
    // Written through a volatile: the compiler must not know better.
    *static_cast<volatile char*>(data_ + at) = 0;
  }
}

}  // namespace rewire
