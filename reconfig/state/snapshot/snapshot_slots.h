// Keeps the newest kKeptVersions versions of one slot's snapshot in host memory. A version counts
// as whole only when every byte has come and still has its hash. The memory may be mapped from
// another process; then parts are listed here and not copied. For Snapshotter and BuddyLink; the
// participant reads whole versions.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/state/snapshot/block.h"
#include "reconfig/state/snapshot/slot_notes.h"
#include "reconfig/state/topo/layout.h"

namespace rewire::state {

// Thread-safe.
class SnapshotSlots {
 public:
  // shared: allocates memory that another process can map.
  explicit SnapshotSlots(bool shared = false) : shared_(shared) {}

  // Memory for all versions.
  struct Memory {
    Block blocks[kKeptVersions];
  };
  // Allocates and touches `bytes` for each version whose present memory is smaller.
  [[nodiscard]] Memory Reserve(uint64_t bytes) const;

  // The parts of one snapshot.
  struct Shape {
    std::vector<Box> boxes;     // the part of each tensor; empty: no part
    std::vector<Box> laid_out;  // the memory's layout: contains at least the boxes
    std::vector<uint32_t> element_bytes;
    [[nodiscard]] uint64_t Room() const;  // bytes of memory for one version
  };
  enum class Keep : uint8_t { kMemory, kNothing };
  // Drops every version, and also the memory unless `keep` keeps it. The given memory replaces the
  // present memory; memory that is still missing is allocated when a version comes. Returns the
  // dropped memory, because freeing it takes a while.
  Memory Reset(Shape shape, Memory memory = {}, Keep keep = Keep::kMemory);

  // These functions store a part of a version: bytes at a byte offset of a tensor. A version newer
  // than all replaces the oldest; a version older than all is refused. Each
  // part may come once. Put() copies the bytes. Alternatively the caller writes them to the address
  // from Room() and then calls Add().
  absl::Status Put(uint64_t version, uint32_t tensor, uint64_t offset, std::span<const char> bytes,
                   uint64_t content);
  absl::StatusOr<char*> Room(uint64_t version, uint32_t tensor, uint64_t offset, uint64_t bytes);
  absl::Status Add(uint64_t version, uint32_t tensor, uint64_t offset, uint64_t bytes,
                   uint64_t content);

  // Call when the next slot has mapped the memory, and takes no more copies: it may be restoring
  // from the memory, because this process counts as lost and does not know it. From then on new
  // versions go to new memory. The present versions stay readable here.
  void LeaveMemory();

  // Returns the descriptors of all memories and allocates missing memory. Fails when they cannot
  // be shared.
  absl::StatusOr<MemoryFiles> Share();
  // Lists a version's parts and, in *index, the memory file that contains them, for the next slot,
  // which has mapped the files. Returns an empty list for an unknown version.
  [[nodiscard]] std::vector<ListedPart> List(uint64_t version, uint32_t* index) const;
  // Replaces this object's memory by the memory files of another process, in the order of `fds`.
  absl::Status MapOf(pid_t owner, const MemoryFiles& fds);
  // Adds parts of a version in mapped memory number `index`. A version may come in several lists.
  absl::Status TakeList(uint64_t version, uint32_t index, std::span<const ListedPart> parts);

  // Drops these tensors' parts of all versions up to `version`.
  void Forget(uint64_t version, std::span<const uint32_t> tensors);
  // Drops all versions up to `version`.
  void Forget(uint64_t version);

  // Returns whether another process may still write to this memory: it was mapped, and its owner
  // has not ended. An owner that counts as lost may live for a while.
  [[nodiscard]] bool MayChange() const;

  // Returns the whole versions: every byte is there and unchanged. Hashes all bytes.
  [[nodiscard]] std::vector<uint64_t> WholeVersions() const;
  // Returns whether every byte of these tensors is there and unchanged at a version.
  [[nodiscard]] bool HasWhole(uint64_t version, std::span<const uint32_t> tensors) const;
  // Returns whether every byte has come, without hashing.
  [[nodiscard]] bool Arrived(uint64_t version) const;
  // Returns the address of this slot's piece of a tensor; nullptr for an unknown version. Valid
  // until Reset, or until kKeptVersions newer versions have come.
  [[nodiscard]] const char* Piece(uint64_t version, uint32_t tensor) const;
  [[nodiscard]] Box PieceBox(uint32_t tensor) const;
  [[nodiscard]] uint64_t bytes() const;  // of one version

 private:
  struct Slot {
    bool used = false;
    bool left = false;  // the memory belongs to the next slot
    uint64_t version = 0;
    Block data;
    std::map<uint64_t, ListedPart> parts;  // by their address in data
    uint64_t arrived = 0;                  // bytes
  };
  [[nodiscard]] Block NewBlock(uint64_t bytes) const;
  // Returns a part's offset in the memory of a version. Fails when the part is outside this slot's
  // piece.
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
  std::vector<uint64_t> starts_ REWIRE_GUARDED_BY(mutex_);  // the offset of each tensor in data
  uint64_t room_ REWIRE_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ REWIRE_GUARDED_BY(mutex_) = 0;
  pid_t owner_ REWIRE_GUARDED_BY(mutex_) = 0;  // of mapped memory; 0: this process
  Slot slots_[kKeptVersions] REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::state
