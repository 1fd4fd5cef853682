// Allocates and maps large blocks of host memory; see block.h.
#include "reconfig/state/snapshot/block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace rewire::state {
namespace {

constexpr size_t kPage = 4096;

char* Map(size_t bytes, int protection, int flags, int fd) {
  void* const data = mmap(nullptr, bytes, protection, flags | MAP_NORESERVE, fd, 0);
  return data == MAP_FAILED ? nullptr : static_cast<char*>(data);
}

}  // namespace

Block Block::Of(size_t bytes) {
  Block block;
  if (bytes == 0) return block;
  block.data_ = Map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (block.data_ == nullptr) return block;
  madvise(block.data_, bytes, MADV_HUGEPAGE);  // a hint: small pages when refused
  block.size_ = bytes;
  return block;
}

Block Block::Shared(size_t bytes) {
  Block block;
  if (bytes == 0) return block;
  block.fd_.reset(memfd_create("rewire-snapshot", MFD_CLOEXEC));
  if (!block.fd_.valid() || ftruncate(block.fd_.get(), static_cast<off_t>(bytes)) != 0) return {};
  block.data_ = Map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, block.fd_.get());
  if (block.data_ == nullptr) return {};
  block.size_ = bytes;
  return block;
}

Block Block::MapOf(pid_t pid, int fd, size_t bytes) {
  Block block;
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  block.fd_.reset(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat file {};
  if (bytes == 0 || !block.fd_.valid() || fstat(block.fd_.get(), &file) != 0 ||
      !S_ISREG(file.st_mode) || static_cast<size_t>(file.st_size) < bytes) {
    return {};
  }
  block.data_ = Map(bytes, PROT_READ, MAP_SHARED, block.fd_.get());
  if (block.data_ == nullptr) return {};
  block.size_ = bytes;
  block.writable_ = false;
  return block;
}

Block::~Block() {
  if (data_ != nullptr) munmap(data_, size_);
}

Block& Block::operator=(Block&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(writable_, other.writable_);
  std::swap(fd_, other.fd_);
  return *this;
}

bool Block::Grow(size_t bytes) {
  if (data_ == nullptr || !writable_) return false;
  if (bytes <= size_) return true;
  if (fd_.valid() && ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) return false;
  void* const grown = mremap(data_, size_, bytes, MREMAP_MAYMOVE);
  if (grown == MAP_FAILED) return false;
  data_ = static_cast<char*>(grown);
  size_ = bytes;
  return true;
}

void Block::Touch() {
  for (size_t at = 0; at < size_; at += kPage) {
    // The volatile pointer keeps the compiler from removing the write.
    *static_cast<volatile char*>(data_ + at) = 0;
  }
}

}  // namespace rewire::state
