// The memory of one simulated device: one memory file, mapped into this process, with an allocator
// over it and a directory at its start of what has been exported. Another process maps the same
// file. Sparse: a page costs memory once it is touched, and no longer once it is freed. Not
// thread-safe: the driver's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace simgpu {

// What an importer finds in the file; the cookie proves that the handle means this allocation.
struct ExportRecord {
  uint64_t cookie[2];
  uint64_t offset;
  uint64_t size;
};

constexpr size_t kExportRecords = 4096;
constexpr size_t kDirectoryBytes = kExportRecords * sizeof(ExportRecord);
constexpr size_t kAllocationGranularity = 512;

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // False when the system refuses. `memory_bytes` is what may be allocated in all. The file's
  // second half has a stamp for each word of the first, mapped only if wanted.
  bool Open(int ordinal, size_t memory_bytes, bool stamps);
  [[nodiscard]] bool is_open() const { return base_ != nullptr; }

  // Null when no memory is left.
  char* Allocate(size_t size);
  void Free(char* pointer);

  // Counts memory that lies in a file of its own. False when so much is not left.
  bool Charge(size_t size);
  void Uncharge(size_t size) { used_ -= size; }

  // The number of the record of this allocation, made by the first call. nullopt: no record left.
  std::optional<size_t> Export(char* pointer, size_t size);
  [[nodiscard]] const ExportRecord& record(size_t number) const { return directory()[number]; }

  // Of a word of this device's memory; the arena must have been opened with stamps.
  [[nodiscard]] uint64_t* stamp(uintptr_t address) const {
    return reinterpret_cast<uint64_t*>(stamps_ + (address - reinterpret_cast<uintptr_t>(base_)));
  }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] size_t total() const { return total_; }
  [[nodiscard]] size_t used() const { return used_; }

 private:
  [[nodiscard]] ExportRecord* directory() const { return reinterpret_cast<ExportRecord*>(base_); }
  void AddFree(size_t offset, size_t size);

  int fd_ = -1;
  char* base_ = nullptr;
  char* stamps_ = nullptr;
  size_t file_bytes_ = 0;
  size_t total_ = 0;
  size_t used_ = 0;
  std::map<size_t, size_t> free_;     // offset to size
  std::map<size_t, size_t> blocks_;   // offset to size
  std::map<size_t, size_t> exports_;  // offset to record
};

}  // namespace simgpu
