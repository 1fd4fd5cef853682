// Copies this slot's part of the state after every update into its own host memory and into the
// next slot's. One thread ("rewire-snap") does this while forward and backward run.
//
// Registered memory that was freed or allocated again is not copied: that version has no copy.
//
// Each slot copies its share of every constant tensor (SnapshotPart in reconfig/state/plan), also
// of replicated tensors. An interrupted update can then be undone from the pieces at a cost of 1/n
// of the state. Only a job in which some state is on one member alone makes these copies; in other
// jobs another member has it. The program's thread copies volatile tensors at once. Every member
// keeps a replicated volatile tensor whole and sends it to no other.
//
// In a job without these copies, volatile tensors are copied even after a loss: a member may then
// finish its update, so that its constant tensors have the new version.
//
// Three versions are kept (kKeptVersions). Members are at most one update apart, because the
// gradients of a step are reduced before its update. So a member may copy version v+1 while the
// copy of v is incomplete at another member, which may die: then all go back to v-1. An update that
// ends in a collective would need two versions only, but updates may be local.
//
// StartWorld, BeginVersion, CopyRest, WaitTaken, Compare, TakeDifference and CopyAgain are owned by
// the program's thread, as are the predicates; the other methods are thread-safe.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "reconfig/state/snapshot/buddy_link.h"
#include "reconfig/state/snapshot/snapshot_slots.h"
#include "reconfig/state/stream/outflow.h"
#include "reconfig/state/stream/state_memory.h"
#include "reconfig/state/stream/transport.h"

namespace rewire::state {

// A registered tensor at its present address.
struct PlacedTensor {
  TensorShape shape;
  Box part;                 // the part of this member
  StatePlace place;         // the address of the part's first byte
  uint64_t allocation = 0;  // AllocationOf(place); 0: unknown
};

class Snapshotter {
 public:
  struct Options : BuddyLink::Options {
    bool buddy = true;  // REWIRE_BUDDY
  };
  // transport and budget must outlive this object.
  Snapshotter(Transport* transport, Budget* budget, Options options);
  ~Snapshotter();
  Snapshotter(const Snapshotter&) = delete;
  Snapshotter& operator=(const Snapshotter&) = delete;

  // Starts the copies for this world and drops earlier copies. slot: this member's slot. layout: of
  // `tensors` in this world. memory: the result of Reserve() for this world.
  void StartWorld(const World& world, const Key& secret, uint32_t slot,
                  const ParallelLayout& layout, std::vector<PlacedTensor> tensors,
                  SnapshotSlots::Memory memory = {});
  // Allocates, in advance, the memory for this slot's copies in a world with this layout.
  // Thread-safe.
  [[nodiscard]] SnapshotSlots::Memory Reserve(const ParallelLayout& layout, uint32_t slot) const;
  // Call after a loss of members. Until the next StartWorld nothing is sent, and no copy of sharded
  // state is taken or overwritten. After the return the thread does not read the state.
  void Freeze();

  // InBackground: in this world an update must wait for the copies of the update before.
  // CopiesAtOnce: BeginVersion() has something to copy at once.
  [[nodiscard]] bool InBackground() const { return sharded_ && buddy_; }
  [[nodiscard]] bool CopiesAtOnce() const { return !volatile_.empty(); }

  // Declares that the state in place has this version from now on: copies volatile tensors, and
  // makes the thread copy the rest. streamed: the version is being streamed to the next world's
  // members in the step that begins, and the thread's copy would slow the stream down. The thread's
  // copy is then left out. A death in this step, or before another version's copy is complete, then
  // costs one more finished step.
  absl::Status BeginVersion(uint64_t version, bool streamed = false);
  // Makes the thread copy the part that was left out, because the version was not streamed.
  void CopyRest(uint64_t version);
  // Makes the thread compare the constant tensors in place with their copies of `version`. Call
  // after WaitTaken(). The state must not change until WaitTaken() returns again. Reads all copied
  // state.
  void Compare(uint64_t version);
  // Returns the name of a tensor that differed in the last comparison, once. The copy was made
  // before the update's device work was complete, or the program has changed the tensor outside an
  // update.
  [[nodiscard]] std::optional<std::string> TakeDifference();
  // Returns, once, whether the next slot refused the last copy or ended its stream, and had taken
  // the copy before. The next slot may know that this member is lost.
  [[nodiscard]] bool TakeCutOff();
  // Drops the copies up to `version`, here at once and at the next slot with its next copy, and
  // makes the thread copy the version again. Call after WaitTaken().
  void CopyAgain(uint64_t version);
  // Frees memory on the thread, because freeing takes a while. Thread-safe.
  void FreeLater(SnapshotSlots::Memory memory);
  // Waits until the constant state may change again: the begun copy is complete here and is
  // complete or given up at the buddy. Returns false at the deadline.
  bool WaitTaken(Time deadline);

  // Return the versions that this member can provide: of its own slot and of the slot before it.
  [[nodiscard]] std::vector<uint64_t> OwnVersions() const;
  [[nodiscard]] std::vector<uint64_t> BuddyVersions() const;
  [[nodiscard]] const SnapshotSlots& own() const { return own_; }
  [[nodiscard]] const SnapshotSlots& kept() const { return link_.kept(); }

  [[nodiscard]] uint64_t bytes_sent() const { return link_.bytes_sent(); }

 private:
  // The copied boxes of each tensor in a world, in elements of the slot's memory: of this slot, and
  // of the slot before it.
  struct Shapes {
    SnapshotSlots::Shape own;
    SnapshotSlots::Shape kept;  // with the layout of that slot's own memory
    std::vector<Box> sent;      // the own boxes that the next slot gets
    bool sharded = false;       // CopiesPieces()
  };
  [[nodiscard]] Shapes ShapesOf(const ParallelLayout& layout, uint32_t slot) const;
  void Run();
  void Ask(uint64_t version, bool compare);
  // Returns the name of a constant tensor that differs from its copy.
  [[nodiscard]] std::optional<std::string> FindDifference(uint64_t version, StateMemory* memory);
  absl::Status CopyOwn(uint64_t version, StateMemory* memory);
  absl::Status CopyPiece(uint32_t tensor, uint64_t version, StateMemory* memory);
  void FreezeLocked() REWIRE_REQUIRES(world_mutex_);

  const bool buddy_;

  // Held while a world starts or ends, by the program's thread or the member's thread.
  Mutex world_mutex_;
  // Set by StartWorld while the thread is idle; read by the thread while busy_.
  std::vector<PlacedTensor> tensors_;
  std::vector<Box> boxes_;          // the copied box of each tensor
  std::vector<uint32_t> volatile_;  // tensors that are copied at once
  bool sharded_ = false;            // CopiesPieces()

  SnapshotSlots own_{/*shared=*/true};
  BuddyLink link_;
  StateMemory program_memory_;

  std::atomic<bool> frozen_{true};
  mutable Mutex mutex_;
  CondVar changed_;
  bool busy_ REWIRE_GUARDED_BY(mutex_) = false;
  bool asked_ REWIRE_GUARDED_BY(mutex_) = false;
  bool compare_ REWIRE_GUARDED_BY(mutex_) = false;  // asked_ is about a comparison, not a copy
  std::optional<std::string> difference_ REWIRE_GUARDED_BY(mutex_);
  bool cut_off_ REWIRE_GUARDED_BY(mutex_) = false;  // see TakeCutOff()
  bool stop_ REWIRE_GUARDED_BY(mutex_) = false;
  uint64_t version_ REWIRE_GUARDED_BY(mutex_) = 0;
  // Memory of earlier worlds, which the thread frees when it has nothing to copy.
  std::vector<SnapshotSlots::Memory> old_ REWIRE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace rewire::state
