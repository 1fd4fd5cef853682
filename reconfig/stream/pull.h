// The receiving end inside a node: this member copies from the sources' device memory itself, and
// hashes what it has written; at the boundary each source hashes what it had, and the two must
// agree. What may change until the boundary is copied there. Nothing crosses a socket but the
// hashes. Of the thread that runs the transition; Cancel() from any.
#pragma once

#include <atomic>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/stream/intake.h"
#include "reconfig/stream/notes.h"
#include "reconfig/stream/peer_mappings.h"
#include "reconfig/stream/peer_offer.h"
#include "reconfig/stream/pull_lists.h"
#include "reconfig/stream/tensor_names.h"

namespace rewire {

class Pull {
 public:
  explicit Pull(StreamNotes* notes) : notes_(notes) {}

  // For errors.
  void SetNames(TensorNames names) { names_ = std::move(names); }

  // In PREPARE: of what comes from `source`, takes on the tensors that it offers and that can be
  // mapped. part_begins: the first byte of the source's part of each tensor.
  void TakeFrom(MemberId source, const PeerOffer& offer, std::span<const uint64_t> part_begins,
                const std::vector<Incoming>& incoming, Time deadline);
  // What was taken on: not to be sent.
  [[nodiscard]] std::vector<uint32_t> TensorsOf(MemberId source) const;

  // Makes what Fetch() needs on this device; of the thread that will fetch.
  absl::Status WarmDevice(CUcontext context) { return memory_.Warm(context); }
  // Copies constant state from each source once it says that it is in place. When it returns none
  // of that is mapped any more.
  absl::Status Fetch(Time deadline);
  // At the boundary: copies the rest as soon as its source stands there. What was copied is what
  // the sources have. When it returns nothing of a source is mapped any more.
  absl::Status Check(Time deadline);
  // Ends Fetch() and Check(); when it returns nothing is read or written any more.
  void Cancel();

  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  struct Piece {
    uint32_t tensor = 0;
    uint64_t begin = 0;
    uint64_t bytes = 0;
    StatePlace from;
    StatePlace to;
    uint64_t content = 0;  // of what was written
  };
  using Pieces = std::map<MemberId, std::vector<Piece>>;
  absl::Status FetchPiece(Piece* piece);
  absl::Status FetchLate(Time deadline);
  absl::Status Agree(MemberId source, std::string_view note,
                     const std::vector<Piece>& pieces) const;

  StreamNotes* const notes_;
  TensorNames names_;
  StateMemory memory_;
  PeerMappings mappings_;  // of constant state, and of the rest
  PeerMappings late_mappings_;
  Pieces pieces_;
  Pieces late_;
  std::atomic<uint64_t> bytes_{0};

  Mutex copying_;  // held while state is read and written
  bool cancelled_ REWIRE_GUARDED_BY(copying_) = false;
};

}  // namespace rewire
