// Two versions of one slot's snapshot in host memory: of the newest and the one before. A version
// is listed only when every byte has come and still hashes to what it did then. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/mutex.h"
#include "reconfig/snapshot/block.h"
#include "reconfig/topo/layout.h"

namespace rewire {

class SnapshotSlots {
 public:
  // Memory for two versions of so many bytes, touched: none where there already is enough.
  struct Memory {
    Block blocks[2];
  };
  [[nodiscard]] Memory Reserve(uint64_t bytes) const;

  // What one snapshot consists of: the box of each tensor (empty: nothing of it), and the size of
  // its elements. Drops everything. Reserved memory takes the place of what there is; what is
  // missing then is made when a version comes.
  void Reset(std::vector<Box> boxes, std::vector<uint32_t> element_bytes, Memory memory = {});

  // Bytes at a byte offset of a tensor, of a version. A version newer than any here takes the place
  // of the oldest; one older than both is refused. A fragment may come once.
  absl::Status Put(uint64_t version, uint32_t tensor, uint64_t offset, std::span<const char> bytes,
                   uint64_t content);

  // The versions that are whole: every byte there and unchanged. Hashes everything.
  [[nodiscard]] std::vector<uint64_t> WholeVersions() const;
  // As WholeVersions() without hashing: every byte has come.
  [[nodiscard]] bool Arrived(uint64_t version) const;
  // Where the piece of a tensor lies; nullptr when the version is not here. Stays valid until Reset
  // or until two newer versions have come.
  [[nodiscard]] const char* Piece(uint64_t version, uint32_t tensor) const;
  [[nodiscard]] Box PieceBox(uint32_t tensor) const;
  [[nodiscard]] uint64_t bytes() const;  // of one version

 private:
  struct Part {
    uint64_t at = 0;  // in data
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t content = 0;
  };
  struct Slot {
    bool used = false;
    uint64_t version = 0;
    Block data;
    std::vector<Part> parts;
    uint64_t arrived = 0;  // bytes
  };
  Slot* For(uint64_t version) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] const Slot* Find(uint64_t version) const REWIRE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<Box> boxes_ REWIRE_GUARDED_BY(mutex_);
  std::vector<uint32_t> element_bytes_ REWIRE_GUARDED_BY(mutex_);
  std::vector<uint64_t> starts_ REWIRE_GUARDED_BY(mutex_);  // of each tensor in data
  uint64_t bytes_ REWIRE_GUARDED_BY(mutex_) = 0;
  Slot slots_[2] REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire
