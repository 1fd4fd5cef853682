// The exchange of copies between neighbours in one world: sends this slot's copies to the next
// slot, and keeps the copies of the slot before this slot.
//
// A next slot on the same node maps this slot's memory, which survives this process. The next slot
// then needs no copy and receives only the hashes. After a failure it gets the bytes themselves,
// for the rest of the world.
//
// A Snapshotter owns the object, and its thread calls Send(), Forget() and next(). Start() must not
// run together with these or Stop(). Stop() may run during Send(). The transport's thread
// calls Take() and Corrupted(). kept() and bytes_sent() are thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reconfig/state/snapshot/snapshot_slots.h"
#include "reconfig/state/stream/outflow.h"
#include "reconfig/state/stream/transport.h"
#include "reconfig/state/topo/layout.h"

namespace rewire::state {

class BuddyLink final : public FragmentSink {
 public:
  struct Options {
    Duration stall = seconds(3);  // after this time a copy counts as failed
    // Returns the NodeIdentity() of a member; "": unknown. Without this function memory is never
    // shared.
    std::function<std::string(const WorldMember&)> node_of;
    // Returns whether a member answers within a short time. Without this function each member does.
    std::function<bool(const WorldMember&)> answers;
  };
  // The neighbours of this slot in a world, and the part of each tensor that the next slot gets.
  struct Neighbours {
    StreamKey key;
    WorldMember next;
    WorldMember previous;
    std::vector<Box> sent;  // empty: no part
    std::vector<uint32_t> element_bytes;
  };
  // transport and budget must outlive this object. Call Stop() before destroying the object.
  BuddyLink(Transport* transport, Budget* budget, Options options);

  // Begins a world. kept: the copies of the slot before this slot. Without neighbours nothing is
  // sent or taken. Returns the dropped memory, because freeing it takes a while.
  SnapshotSlots::Memory Start(SnapshotSlots::Shape kept, std::optional<Neighbours> neighbours);
  // Until the next Start() nothing is taken, and Send() ends. A Send() that began before Stop() may
  // open the stream again: repeat Stop() until Send() has returned.
  void Stop();

  // Sends the copies of `version` that `own` has, and waits until the next slot has taken them.
  // Does nothing without a next slot, or while a next slot that failed does not answer. Then a next
  // slot that has detached or is cut off costs the program one wait, not one per version.
  absl::Status Send(uint64_t version, SnapshotSlots* own);

  // The copies up to `version` are not the state: the next Send() of this world first makes the
  // next slot drop them.
  void Forget(uint64_t version) { forgotten_ = version; }

  absl::Status Take(MemberId sender, const FragmentHeader& header,
                    std::span<const char> bytes) override;
  void Corrupted(MemberId sender, const FragmentHeader& header) override;

  [[nodiscard]] MemberId next() const { return neighbours_.next.member; }
  // Returns whether the next slot of this world has not taken its last copy. For the thread that
  // sends.
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] const SnapshotSlots& kept() const { return kept_; }
  [[nodiscard]] uint64_t bytes_sent() const { return bytes_sent_.load(); }

 private:
  // Opens the stream on which the slot before this slot sends.
  void OpenStream();
  bool NextAnswers();
  // Lets the next slot map the memory, if that slot is on this node.
  void OfferMemory(SnapshotSlots* own);
  // Sends by `send`, and waits until the next slot has taken everything.
  template <typename SendBy>
  absl::Status Deliver(SnapshotSlots* own, SendBy&& send);
  absl::Status SendBytes(uint64_t version, const SnapshotSlots& own, Outflow* outflow);
  // Sends the list of parts in the memory that the next slot has mapped.
  absl::Status SendParts(uint64_t version, const SnapshotSlots& own, Outflow* outflow);
  absl::Status TakeMemory(std::span<const char> bytes);
  absl::Status TakeParts(std::span<const char> bytes);
  absl::Status TakeForget(std::span<const char> bytes);

  Transport* const transport_;
  Budget* const budget_;
  const Options options_;
  std::atomic<bool> stopped_{true};
  std::atomic<uint64_t> bytes_sent_{0};
  SnapshotSlots kept_;  // the previous slot's

  // Set by Start(), and owned by the thread that sends.
  Neighbours neighbours_;
  bool has_next_ = false;
  bool offered_ = false;               // the memory was offered to the next slot in this world
  bool mapped_ = false;                // the next slot has mapped the memory
  bool failed_ = false;                // see failed()
  Time ask_again_{};                   // after a failure: when to ask the next slot again
  std::optional<uint64_t> forgotten_;  // up to here, the next slot has to drop its copies
};

}  // namespace rewire::state
