#include "tests/simgpu/cuda/arena.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <string>

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {
namespace {

constexpr size_t kPage = 4096;

char* MapFile(int fd, size_t offset, size_t bytes) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                        static_cast<off_t>(offset));
  return mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
}

}  // namespace

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, file_bytes_);
  if (stamps_ != nullptr) ::munmap(stamps_, file_bytes_);
  if (fd_ >= 0) ::close(fd_);
}

bool Arena::Open(int ordinal, size_t memory_bytes, bool stamps) {
  // The address range is twice the memory size, so that fragmentation never exhausts it.
  const size_t file_bytes = kDirectoryBytes + 2 * memory_bytes;
  const int fd = ::memfd_create(("simgpu" + std::to_string(ordinal)).c_str(), MFD_CLOEXEC);
  if (fd < 0) return false;
  if (::ftruncate(fd, static_cast<off_t>(2 * file_bytes)) == 0) {
    base_ = MapFile(fd, 0, file_bytes);
    if (stamps) stamps_ = MapFile(fd, file_bytes, file_bytes);
  }
  fd_ = fd;
  file_bytes_ = file_bytes;
  if (base_ == nullptr || (stamps && stamps_ == nullptr)) {
    Say("the memory of device %d (%zu bytes) cannot be mapped", ordinal, file_bytes);
    return false;
  }
  total_ = memory_bytes;
  free_[kDirectoryBytes] = file_bytes - kDirectoryBytes;
  return true;
}

char* Arena::Allocate(size_t size) {
  if (size > total_) return nullptr;
  const size_t rounded =
      (size + kAllocationGranularity - 1) / kAllocationGranularity * kAllocationGranularity;
  if (rounded > total_ - used_) return nullptr;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < rounded) continue;
    const size_t offset = it->first;
    const size_t rest = it->second - rounded;
    free_.erase(it);
    if (rest > 0) free_[offset + rounded] = rest;
    blocks_[offset] = rounded;
    used_ += rounded;
    return base_ + offset;
  }
  return nullptr;
}

bool Arena::Charge(size_t size) {
  if (size > total_ - used_) return false;
  used_ += size;
  return true;
}

void Arena::AddFree(size_t offset, size_t size) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_[offset] = size;
}

void Arena::Free(char* pointer) {
  const auto offset = static_cast<size_t>(pointer - base_);
  const auto block = blocks_.find(offset);
  if (block == blocks_.end()) return;
  const size_t size = block->second;
  blocks_.erase(block);
  used_ -= size;
  if (const auto exported = exports_.find(offset); exported != exports_.end()) {
    directory()[exported->second] = ExportRecord{};  // the handle is invalid from here on
    exports_.erase(exported);
  }
  AddFree(offset, size);
  // Whole pages are returned to the system; pages shared with a neighbour stay.
  const size_t first = (offset + kPage - 1) / kPage * kPage;
  const size_t last = (offset + size) / kPage * kPage;
  if (first < last) {
    ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                static_cast<off_t>(last - first));
  }
}

std::optional<size_t> Arena::Export(char* pointer, size_t size) {
  const auto offset = static_cast<size_t>(pointer - base_);
  if (const auto known = exports_.find(offset); known != exports_.end()) return known->second;
  for (size_t i = 0; i < kExportRecords; ++i) {
    ExportRecord& record = directory()[i];
    if (record.size != 0) continue;
    uint64_t cookie[2] = {};
    if (::getrandom(cookie, sizeof cookie, 0) != static_cast<ssize_t>(sizeof cookie)) break;
    record = ExportRecord{{cookie[0], cookie[1]}, offset, size};
    exports_[offset] = i;
    return i;
  }
  return std::nullopt;
}

}  // namespace simgpu
