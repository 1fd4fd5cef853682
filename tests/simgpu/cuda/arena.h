// The memory of one simulated device: one memory file, mapped into this process, with an allocator
// and, at its start, a directory of exported allocations. Other processes map the same file. The
// file is sparse: a page uses memory from its first access until it is freed. Thread-compatible:
// guarded by the driver's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace simgpu {

// An export's record in the file. The cookie proves that the handle means this allocation.
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

  // Returns false if a system call fails. `memory_bytes` limits the sum of all allocations. The
  // second half of the file has a stamp for each word of the first half; it is mapped only with
  // `stamps`.
  bool Open(int ordinal, size_t memory_bytes, bool stamps);
  [[nodiscard]] bool is_open() const { return base_ != nullptr; }

  // Returns null if no memory is left.
  char* Allocate(size_t size);
  void Free(char* pointer);

  // Counts memory that lies in its own file. Returns false if fewer than `size` bytes are left.
  bool Charge(size_t size);
  void Uncharge(size_t size) { used_ -= size; }

  // Returns the record number of this allocation; the first call makes the record. nullopt: no
  // record is left.
  std::optional<size_t> Export(char* pointer, size_t size);
  [[nodiscard]] const ExportRecord& record(size_t number) const { return directory()[number]; }

  // Returns the stamp of a word of this device's memory. The arena must have been opened with
  // stamps.
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
