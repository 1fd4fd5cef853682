// The receiving end of one transition. The plan gives every expected fragment, with its sender and
// its place; any other fragment is refused. Take() and Corrupted() are called from the transport's
// thread, the others from the thread that runs the transition. Cancel() is thread-safe.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/state/stream/notes.h"
#include "reconfig/state/stream/placed_check.h"
#include "reconfig/state/stream/state_memory.h"
#include "reconfig/state/stream/transport.h"
#include "reconfig/state/topo/layout.h"

namespace rewire::state {

// Bytes that come from `source`, and their destination; the offset of the first fragment is
// `begin`.
struct Incoming {
  uint32_t tensor = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  MemberId source = 0;
  Runs from;          // in the source's part
  StateRuns place;    // as many bytes
  bool late = false;  // true when the bytes may change until the boundary
};

class Intake final : public FragmentSink {
 public:
  // notes: receives the notes; nullptr: notes are refused. names: for errors.
  explicit Intake(std::vector<Incoming> incoming, StreamNotes* notes = nullptr,
                  TensorNames names = {});

  absl::Status Take(MemberId sender, const FragmentHeader& header,
                    std::span<const char> bytes) override;
  void Corrupted(MemberId sender, const FragmentHeader& header) override;

  // Expects these tensors from `source` no longer, because this member copies them itself.
  void Withdraw(MemberId source, std::span<const uint32_t> tensors);
  // Waits for every byte. Returns the first failure at once; kDeadlineExceeded gives the number of
  // missing fragments and names the first.
  absl::Status Wait(Time deadline);
  // Returns what has been placed. Call after Wait().
  [[nodiscard]] std::vector<PlacedBytes> Placed() const;
  // Ends Wait() with kCancelled.
  void Cancel();
  [[nodiscard]] uint64_t bytes() const;

 private:
  struct Expected {
    uint32_t bytes = 0;
    const Incoming* in = nullptr;
    bool arrived = false;
  };

  StreamNotes* const notes_;
  const TensorNames names_;
  const std::vector<Incoming> incoming_;
  StateMemory memory_;  // owned by the transport's thread
  mutable Mutex mutex_;
  CondVar changed_;
  // By sender, tensor and offset.
  std::map<std::tuple<MemberId, uint32_t, uint64_t>, Expected> expected_ REWIRE_GUARDED_BY(mutex_);
  uint64_t missing_ REWIRE_GUARDED_BY(mutex_) = 0;  // fragments
  uint64_t bytes_ REWIRE_GUARDED_BY(mutex_) = 0;
  // The sum of the fragments' hashes.
  std::map<const Incoming*, uint64_t> contents_ REWIRE_GUARDED_BY(mutex_);
  absl::Status failure_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::state
