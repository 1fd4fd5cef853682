// Two versions of one slot's snapshot in host memory: of the newest and the one before. A version
// is listed only when every byte has come and still hashes to what it did then. The memory may be
// another process's, mapped: then parts are listed here, and nothing is copied. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/snapshot/block.h"
#include "reconfig/snapshot/slot_notes.h"
#include "reconfig/topo/layout.h"

namespace rewire {

class SnapshotSlots {
 public:
  // shared: in memory that another process can map.
  explicit SnapshotSlots(bool shared = false) : shared_(shared) {}

  // Memory for two versions.
  struct Memory {
    Block blocks[2];
  };
  // Of so many bytes, touched; none where there already is enough.
  [[nodiscard]] Memory Reserve(uint64_t bytes) const;

  // What one snapshot consists of.
  struct Shape {
    std::vector<Box> boxes;     // of each tensor; empty: nothing of it
    std::vector<Box> laid_out;  // what has a place in the memory: at least the boxes
    std::vector<uint32_t> element_bytes;
    [[nodiscard]] uint64_t Room() const;  // bytes of memory for one version
  };
  enum class Keep : uint8_t { kMemory, kNothing };
  // Drops everything, the memory too unless it is kept. The memory given takes the place of what
  // there is; what is missing then is made when a version comes. Gives what was dropped: to free it
  // takes a while.
  Memory Reset(Shape shape, Memory memory = {}, Keep keep = Keep::kMemory);

  // Bytes at a byte offset of a tensor, of a version. A version newer than any here takes the place
  // of the oldest; one older than both is refused. A part may come once. Put copies; or the caller
  // writes them where Room() says and then Add()s them.
  absl::Status Put(uint64_t version, uint32_t tensor, uint64_t offset, std::span<const char> bytes,
                   uint64_t content);
  absl::StatusOr<char*> Room(uint64_t version, uint32_t tensor, uint64_t offset, uint64_t bytes);
  absl::Status Add(uint64_t version, uint32_t tensor, uint64_t offset, uint64_t bytes,
                   uint64_t content);

  // Both memories, made if they are not there; not ok: they cannot be shared.
  absl::StatusOr<std::vector<int>> Share();
  // Lists a version's parts and the number of the memory file that has them, for the next slot,
  // which has mapped the files. Empty: the version is in neither.
  [[nodiscard]] std::vector<ListedPart> List(uint64_t version, uint32_t* index) const;
  // Uses the memory that another process shares, in its order of fds, instead of our own.
  absl::Status MapOf(pid_t owner, const int (&fds)[2]);
  // The parts of a version in mapped memory number `index`. May come in several lists.
  absl::Status TakeList(uint64_t version, uint32_t index, std::span<const ListedPart> parts);

  // The versions that are whole: every byte there and unchanged. Hashes everything.
  [[nodiscard]] std::vector<uint64_t> WholeVersions() const;
  // Every byte of these tensors is there and unchanged at a version.
  [[nodiscard]] bool HasWhole(uint64_t version, std::span<const uint32_t> tensors) const;
  // As WholeVersions() without hashing: every byte has come.
  [[nodiscard]] bool Arrived(uint64_t version) const;
  // Where the piece of a tensor lies; nullptr when the version is not here. Stays valid until Reset
  // or until two newer versions have come.
  [[nodiscard]] const char* Piece(uint64_t version, uint32_t tensor) const;
  [[nodiscard]] Box PieceBox(uint32_t tensor) const;
  [[nodiscard]] uint64_t bytes() const;  // of one version

 private:
  struct Slot {
    bool used = false;
    uint64_t version = 0;
    Block data;
    std::map<uint64_t, ListedPart> parts;  // by where they lie in data
    uint64_t arrived = 0;                  // bytes
  };
  [[nodiscard]] Block NewBlock(uint64_t bytes) const;
  // Where a part lies in the memory of a version; not ok: it is none of ours.
  absl::StatusOr<uint64_t> PlaceOf(uint32_t tensor, uint64_t offset, uint64_t bytes) const
      REWIRE_REQUIRES(mutex_);
  absl::StatusOr<Slot*> For(uint64_t version) REWIRE_REQUIRES(mutex_);
  static void Begin(Slot* slot, uint64_t version);
  static absl::Status CheckNew(const Slot& slot, uint64_t at, uint64_t bytes);
  absl::Status AddTo(Slot* slot, const ListedPart& part) REWIRE_REQUIRES(mutex_);
  [[nodiscard]] const Slot* Find(uint64_t version) const REWIRE_REQUIRES(mutex_);
  static bool Unchanged(const Slot& slot, uint64_t at, const ListedPart& part);

  const bool shared_;
  mutable Mutex mutex_;
  Shape shape_ REWIRE_GUARDED_BY(mutex_);
  std::vector<uint64_t> starts_ REWIRE_GUARDED_BY(mutex_);  // of each tensor in data
  uint64_t room_ REWIRE_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ REWIRE_GUARDED_BY(mutex_) = 0;
  Slot slots_[2] REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire
