// The receiving end inside a node: this member itself copies from the sources' device memory and
// hashes the copies. At the boundary each source hashes its own bytes, and the hashes must agree.
// State that may change until the boundary is copied at the boundary. Only hashes and notes cross a
// socket. Owned by the thread that runs the transition; Cancel() is thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/state/stream/intake.h"
#include "reconfig/state/stream/notes.h"
#include "reconfig/state/stream/peer_memory.h"
#include "reconfig/state/stream/peer_offer.h"
#include "reconfig/state/stream/placed_check.h"
#include "reconfig/state/topo/layout.h"

namespace rewire::state {

class Pull {
 public:
  explicit Pull(StreamNotes* notes) : notes_(notes) {}

  // Sets the names of tensors for errors.
  void SetNames(TensorNames names) { names_ = std::move(names); }

  // In PREPARE: selects the tensors of `incoming` that `source` offers and that can be mapped.
  void TakeFrom(MemberId source, const PeerOffer& offer, const std::vector<Incoming>& incoming,
                Time deadline);
  // Returns the selected tensors, which the source must not send.
  [[nodiscard]] std::vector<uint32_t> TensorsOf(MemberId source) const;

  // Allocates the resources of Fetch() on this device. Call from the thread that will fetch.
  absl::Status WarmDevice(CUcontext context) { return memory_.Warm(context); }
  // Copies constant state from each source after the source reports that its version is in place.
  // Unmaps all constant state before returning.
  absl::Status Fetch(Time deadline);
  // At the boundary: copies the remaining state as soon as its source has reported, and compares
  // all copies with the sources' hashes. Unmaps all of the sources' memory before returning.
  absl::Status Check(Time deadline);
  // Returns the copies. Call after Check().
  [[nodiscard]] std::vector<PlacedBytes> Placed() const;
  // Ends Fetch() and Check(). When Cancel() returns, nothing is read or written any more.
  void Cancel();

  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  struct Piece {
    uint32_t tensor = 0;
    uint64_t begin = 0;
    uint64_t bytes = 0;
    StateRuns from;
    StateRuns to;
    uint64_t content = 0;  // of the written bytes
  };
  using Pieces = std::map<MemberId, std::vector<Piece>>;
  absl::Status FetchPiece(Piece* piece);
  absl::Status FetchLate(Time deadline);
  absl::Status Agree(MemberId source, std::string_view note,
                     const std::vector<Piece>& pieces) const;

  StreamNotes* const notes_;
  TensorNames names_;
  StateMemory memory_;
  PeerMappings mappings_;       // mappings of constant state
  PeerMappings late_mappings_;  // mappings of the remaining state
  Pieces pieces_;
  Pieces late_;
  std::atomic<uint64_t> bytes_{0};

  Mutex copying_;  // held while state is read and written
  bool cancelled_ REWIRE_GUARDED_BY(copying_) = false;
};

}  // namespace rewire::state
