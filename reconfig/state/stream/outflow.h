// The sending end of one transition: reads, hashes and sends the parts that the plan takes from
// this member, within a budget, and hashes the parts again at the step boundary. A copy within the
// member is read and hashed like a fragment, but is not sent. An Outflow is owned by the thread
// that runs the transition, or by the thread that sends snapshots; Cancel() is thread-safe.
//
// Fragments in flight are in a few buffers that are reused, because new memory for every fragment
// would cost more than the copies.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/state/stream/notes.h"
#include "reconfig/state/stream/placed_check.h"
#include "reconfig/state/stream/state_memory.h"
#include "reconfig/state/stream/transport.h"
#include "reconfig/state/topo/layout.h"

namespace rewire::state {

// Credits for state bytes in flight. A sender takes credits before reading bytes out of the state
// and returns them when the receiver has placed the bytes. Neither the credits in use nor their
// peak ever exceed the limit. Thread-safe.
class Budget {
 public:
  explicit Budget(uint64_t limit) : limit_(limit) {}

  // Waits for `bytes` credits. Returns false if the credits are not free before the deadline, and
  // at once if `bytes` exceeds the limit.
  bool Take(uint64_t bytes, Time deadline);
  void Give(uint64_t bytes);

  [[nodiscard]] uint64_t limit() const { return limit_; }
  [[nodiscard]] uint64_t in_flight() const;
  [[nodiscard]] uint64_t peak() const;

 private:
  const uint64_t limit_;
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t out_ REWIRE_GUARDED_BY(mutex_) = 0;
  uint64_t peak_ REWIRE_GUARDED_BY(mutex_) = 0;
};

// Bytes that this member sends to `target`; the offset of the first fragment is `begin`.
struct Outgoing {
  uint32_t tensor = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  StateRuns source;  // as many bytes
  WorldMember target;
  bool local = false;
  StateRuns place;  // when local: the destination
  // The source is one run of host memory that does not change until all bytes are placed or the
  // stream is closed. The bytes are then sent from the source without a copy.
  bool stays = false;
};

class Outflow {
 public:
  Outflow(const StreamKey& key, Transport* transport, Budget* budget)
      : key_(key), transport_(transport), budget_(budget) {}
  // Close the transport's stream before destroying this object.
  ~Outflow() = default;

  // Sends `outgoing`. Returns when the transport has taken all bytes; WaitPlaced() waits for their
  // arrival. remember: Recheck() hashes the bytes again later; fails when a source has changed
  // since it was sent to another target.
  absl::Status Send(const std::vector<Outgoing>& outgoing, uint64_t version, bool remember,
                    Time deadline);
  // Sets the tensors' names that error texts use.
  void SetNames(TensorNames names) { names_ = std::move(names); }
  // Allocates all buffers now, so that Send() does not allocate.
  void Warm();
  // Prepares for state on this device. Call from the thread that will send.
  absl::Status WarmDevice(CUcontext context) { return memory_.Warm(context); }
  // Hashes the remembered sources again. Fails, naming the first source that has changed.
  absl::Status Recheck();
  // Returns the copies within the member.
  [[nodiscard]] const std::vector<PlacedBytes>& placed() const { return placed_; }
  // Sends a note as a separate fragment.
  absl::Status SendNote(const WorldMember& target, NoteKind kind, std::string bytes, Time deadline);
  // Returns the hash of the current bytes of `out.source`.
  absl::StatusOr<uint64_t> Content(const Outgoing& out);
  // Waits until receivers have placed everything that was sent.
  absl::Status WaitPlaced(Time deadline);
  // Ends all reads of the state. After Cancel() returns, no thread reads the state, and a call that
  // needs to read the state fails.
  void Cancel();

  [[nodiscard]] uint64_t bytes_on_wire() const { return bytes_on_wire_; }

 private:
  struct Sent {
    StateRuns source;
    uint64_t at = 0;  // the first of the bytes in the source
    uint64_t bytes = 0;
    uint64_t content = 0;
  };
  // Notes a source, unless it is known.
  absl::Status Remember(const Outgoing& out, uint64_t at, uint64_t bytes, uint64_t content);
  [[nodiscard]] absl::Status Changed(uint32_t tensor) const;
  absl::Status CopyOne(const Outgoing& out, uint64_t at, bool remember);
  absl::Status SendOne(const Outgoing& out, uint64_t at, uint64_t version, bool remember,
                       Time deadline);
  absl::Status SendBytes(const Outgoing& out, uint64_t at, uint64_t version,
                         std::span<const char> bytes, uint64_t content, char* buffer);
  // The completion of one fragment: returns its credits to the budget, and `buffer`, unless null,
  // to free_.
  void Placed(uint64_t bytes, char* buffer, const absl::Status& status);
  // Returns a buffer of kFragmentBytes, or the reason why there is none.
  absl::StatusOr<char*> TakeBuffer(Time deadline);

  const StreamKey key_;
  Transport* const transport_;
  Budget* const budget_;
  TensorNames names_;
  StateMemory memory_;
  // By tensor and offset. Each target, and this member itself, may get other bytes at an offset.
  std::multimap<std::pair<uint32_t, uint64_t>, Sent> sent_;
  std::vector<PlacedBytes> placed_;
  uint64_t bytes_on_wire_ = 0;

  Mutex reading_;  // held while the state is read
  bool cancelled_ REWIRE_GUARDED_BY(reading_) = false;

  Mutex mutex_;
  CondVar changed_;
  uint64_t unplaced_ REWIRE_GUARDED_BY(mutex_) = 0;  // fragments
  std::vector<std::unique_ptr<char[]>> buffers_ REWIRE_GUARDED_BY(mutex_);
  std::list<std::string> notes_ REWIRE_GUARDED_BY(mutex_);  // bytes of the notes on the wire
  std::vector<char*> free_ REWIRE_GUARDED_BY(mutex_);
  absl::Status failure_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::state
