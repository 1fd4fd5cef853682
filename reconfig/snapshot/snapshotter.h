// Takes the copies: after every update of what this slot snapshots, into its own host memory and
// into the next slot's, on a thread of its own ("rewire-snap") while forward and backward run.
//
// Registered memory that was freed or allocated anew is not copied: that version has no copy.
//
// What is copied (reconfig/plan SnapshotPart): a slot's shard of every constant tensor, also of the
// replicated ones, so that an interrupted update can be undone from pieces at a cost of 1/n of the
// state; only in a job that has sharded tensors, the others have every constant on every member.
// Volatile tensors are copied at once, on the program's thread, and a replicated one is kept whole
// by everyone and sent to nobody. Where nothing is sharded they are copied even after a loss: a
// member may finish its update then, and its constant tensors are of the new version. Two versions
// suffice because an update of sharded state ends in a collective: nobody finishes update v+1
// before everybody's copy of v is there.
//
// A next slot on the same node maps this slot's memory instead, which stays when this process dies:
// then a copy costs it nothing, and only the hashes go to it.
//
// Program's thread: BeginVersion, WaitTaken. The others: any thread.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "reconfig/plan/plan.h"
#include "reconfig/snapshot/slots.h"
#include "reconfig/stream/outflow.h"
#include "reconfig/stream/state_memory.h"
#include "reconfig/stream/transport.h"

namespace rewire {

// A tensor where it lies now.
struct PlacedTensor {
  TensorShape shape;
  Box part;                 // of this member
  StatePlace place;         // of the part's first byte
  uint64_t allocation = 0;  // AllocationOf(place); 0: unknown
};

class Snapshotter final : public FragmentSink {
 public:
  struct Options {
    bool buddy = true;            // REWIRE_BUDDY
    Duration stall = seconds(3);  // how long a copy may take before it counts as failed
    // The NodeIdentity() of a member; "": not known. Empty: memory is never shared.
    std::function<std::string(const WorldMember&)> node_of;
    // Whether a member answers within a short time. Empty: each one does.
    std::function<bool(const WorldMember&)> answers;
  };
  Snapshotter(Transport* transport, Budget* budget, Options options);
  ~Snapshotter() override;

  // From here on copies are of this world. What there was is dropped. slot: of this member.
  // memory: what Reserve() gave for it.
  void StartWorld(const World& world, const Key& secret, uint32_t slot,
                  std::vector<PlacedTensor> tensors, SnapshotSlots::Memory memory = {});
  // The memory for the own copies of a world of so many slots, made beforehand. Any thread.
  [[nodiscard]] SnapshotSlots::Memory Reserve(std::span<const TensorShape> shapes, uint32_t slots,
                                              uint32_t slot) const;
  // Members were lost: until the next StartWorld nothing is sent, and no copy of what exists once
  // is taken or overwritten. When it returns the thread does not read the state any more.
  void Freeze();

  // Of the world that was started: an update must wait for the copies of the one before; and
  // BeginVersion() has something to copy at once.
  [[nodiscard]] bool InBackground() const { return sharded_ && options_.buddy; }
  [[nodiscard]] bool CopiesAtOnce() const { return !volatile_.empty(); }

  // The state in place is of this version from now on: copies what is volatile, and has the thread
  // copy the rest. streamed: this version is going to the next world's members during the step that
  // begins, and to copy it too would slow that down. What the thread copies is left out then: a
  // death in this step costs the finished step before it, as does one that comes before any other
  // version's copy is complete.
  absl::Status BeginVersion(uint64_t version, bool streamed = false);
  // Has the thread copy what was left out: the version was not streamed after all.
  void CopyRest(uint64_t version);
  // Memory that nobody needs: to free it takes a while. Any thread.
  void FreeLater(SnapshotSlots::Memory memory);
  // The constant state may be changed again: what was begun has been copied, here and (or it is
  // given up) at the buddy. False at the deadline.
  bool WaitTaken(Time deadline);

  // What AtBoundary says: versions that this member can give, of its own and of the slot before it.
  [[nodiscard]] std::vector<uint64_t> OwnVersions() const;
  [[nodiscard]] std::vector<uint64_t> BuddyVersions() const;
  [[nodiscard]] const SnapshotSlots& own() const { return own_; }
  [[nodiscard]] const SnapshotSlots& kept() const { return kept_; }

  absl::Status Take(MemberId sender, const FragmentHeader& header,
                    std::span<const char> bytes) override;
  void Corrupted(MemberId sender, const FragmentHeader& header) override;

  [[nodiscard]] uint64_t bytes_copied() const { return bytes_copied_.load(); }
  [[nodiscard]] uint64_t bytes_sent() const { return bytes_sent_.load(); }

 private:
  // What is copied of each tensor in a world: of this slot, and for the slot before it.
  struct Shapes {
    SnapshotSlots::Shape own;
    SnapshotSlots::Shape kept;  // laid out as that slot's own
    bool sharded = false;       // something exists once
  };
  [[nodiscard]] Shapes ShapesOf(std::span<const TensorShape> shapes, uint32_t slots,
                                uint32_t slot) const;
  void Run();
  absl::Status CopyOwn(uint64_t version, StateMemory* memory);
  absl::Status SendToBuddy(uint64_t version);
  // False: the next slot has not taken a copy before, and does not answer.
  bool NextAnswers();
  absl::Status SendParts(uint64_t version, Outflow* outflow);
  // Lets the next slot map the memory, if it can.
  void OfferMemory();
  absl::Status TakeMemory(std::span<const char> bytes);
  absl::Status TakeParts(std::span<const char> bytes);
  absl::Status CopyPiece(uint32_t tensor, uint64_t version, StateMemory* memory);
  void FreezeLocked() REWIRE_REQUIRES(world_mutex_);

  Transport* const transport_;
  Budget* const budget_;
  const Options options_;
  std::atomic<uint64_t> bytes_copied_{0};
  std::atomic<uint64_t> bytes_sent_{0};

  // Held by whoever starts or ends a world: the program's thread and the member's.
  Mutex world_mutex_;
  // Set by StartWorld while the thread is idle; read by the thread while busy_.
  std::vector<PlacedTensor> tensors_;
  std::vector<Box> boxes_;          // what of each tensor is copied
  std::vector<uint32_t> volatile_;  // tensors that are copied at once
  bool sharded_ = false;            // something exists once
  StreamKey key_;
  WorldMember next_;
  bool has_next_ = false;
  bool offered_ = false;  // the memory, to the next slot, in this world
  bool mapped_ = false;   // and it has it
  WorldMember previous_;
  bool failed_ = false;  // the next slot of this world has not taken its last copy
  Time ask_again_{};     // then: when to ask the next slot whether it answers

  SnapshotSlots own_{/*shared=*/true};
  SnapshotSlots kept_;  // the previous slot's
  StateMemory program_memory_;

  std::atomic<bool> frozen_{true};
  mutable Mutex mutex_;
  CondVar changed_;
  bool busy_ REWIRE_GUARDED_BY(mutex_) = false;
  bool asked_ REWIRE_GUARDED_BY(mutex_) = false;
  bool stop_ REWIRE_GUARDED_BY(mutex_) = false;
  uint64_t version_ REWIRE_GUARDED_BY(mutex_) = 0;
  // Of worlds before: freed by the thread, once it has nothing to copy.
  std::vector<SnapshotSlots::Memory> old_ REWIRE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace rewire
