// The sending end of one transition: reads, hashes and sends what the plan takes from this member,
// within the budget, and hashes it again at the boundary. Copies within the member are fragments
// too, only that they cross no wire. Of the thread that runs the transition; Cancel() from any.
//
// What is on the wire lies in a few buffers that are used again and again: fresh memory for every
// fragment would cost more than the copies.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/mutex.h"
#include "reconfig/stream/budget.h"
#include "reconfig/stream/notes.h"
#include "reconfig/stream/state_memory.h"
#include "reconfig/stream/tensor_names.h"
#include "reconfig/stream/transport.h"

namespace rewire {

// Bytes [begin, end) of a tensor that this member gives to `target`.
struct Outgoing {
  uint32_t tensor = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  StatePlace source;  // of byte `begin`
  WorldMember target;
  bool local = false;
  StatePlace place;  // when local: where byte `begin` goes
  // The source is host memory that stays as it is until all was placed or the stream is closed: it
  // is sent from where it lies.
  bool stays = false;
};

class Outflow {
 public:
  Outflow(const StreamKey& key, Transport* transport, Budget* budget)
      : key_(key), transport_(transport), budget_(budget) {}
  // The transport's stream must have been closed.
  ~Outflow() = default;

  // Sends; returns when everything was handed over (not: has arrived). remember: Recheck() hashes
  // it again later.
  absl::Status Send(const std::vector<Outgoing>& outgoing, uint64_t version, bool remember,
                    Time deadline);
  // For errors.
  void SetNames(TensorNames names) { names_ = std::move(names); }
  // Makes the buffers, so that Send() need not.
  void Warm();
  // Likewise for state on this device; of the thread that will send.
  absl::Status WarmDevice(CUcontext context) { return memory_.Warm(context); }
  // The sources still are what was sent; names the first that is not.
  absl::Status Recheck();
  // A note, as a fragment of its own.
  absl::Status SendNote(const WorldMember& target, NoteKind kind, std::string bytes, Time deadline);
  // The hash of what `out` names, as it is now.
  absl::StatusOr<uint64_t> Content(const Outgoing& out);
  // Everything sent has been placed by its receiver.
  absl::Status WaitPlaced(Time deadline);
  // When it returns the state is not read any more, and never will be again.
  void Cancel();

  [[nodiscard]] uint64_t bytes_on_wire() const { return bytes_on_wire_; }

 private:
  struct Sent {
    StatePlace source;
    uint64_t bytes = 0;
    uint64_t content = 0;
  };
  absl::Status CopyOne(const Outgoing& out, uint64_t at, bool remember);
  absl::Status SendOne(const Outgoing& out, uint64_t at, uint64_t version, bool remember,
                       Time deadline);
  absl::Status SendBytes(const Outgoing& out, uint64_t at, uint64_t version,
                         std::span<const char> bytes, uint64_t content, char* buffer);
  // buffer: to be used again; nullptr: none.
  void Placed(uint64_t bytes, char* buffer, const absl::Status& status);
  // A buffer of kFragmentBytes, or why there is none.
  absl::StatusOr<char*> TakeBuffer(Time deadline);

  const StreamKey key_;
  Transport* const transport_;
  Budget* const budget_;
  TensorNames names_;
  StateMemory memory_;
  std::map<std::pair<uint32_t, uint64_t>, Sent> sent_;  // by tensor and offset
  uint64_t bytes_on_wire_ = 0;

  Mutex reading_;  // held while the state is read
  bool cancelled_ REWIRE_GUARDED_BY(reading_) = false;

  Mutex mutex_;
  CondVar changed_;
  uint64_t unplaced_ REWIRE_GUARDED_BY(mutex_) = 0;  // fragments
  std::vector<std::unique_ptr<char[]>> buffers_ REWIRE_GUARDED_BY(mutex_);
  std::list<std::string> notes_ REWIRE_GUARDED_BY(mutex_);  // what fragments of them refer to
  std::vector<char*> free_ REWIRE_GUARDED_BY(mutex_);
  absl::Status failure_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire
