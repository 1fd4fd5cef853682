// One transition's copies inside the node: a target copies from the source's device memory itself.
// As a source, this member offers its memory and tells the targets what they copied; as a target it
// asks the sources on its node and copies. Owned by the transition's threads, which call one after
// the other, except for pull().Cancel() and the byte counts.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/settings.h"
#include "reconfig/elastic/participant/new_parts.h"
#include "reconfig/state/stream/intake.h"
#include "reconfig/state/stream/outflow.h"
#include "reconfig/state/stream/peer_memory.h"
#include "reconfig/state/stream/pull.h"

namespace rewire::elastic {

class PeerSharing {
 public:
  struct Options {
    Epoch epoch = 0;
    // REWIRE_PEER_COPY: whether device memory is copied directly inside a node.
    bool peer_copy = true;
    Duration build = milliseconds(SettingDefaults::build_ms);  // for a source's offer
    // Publishes the places of this member's tensors (EncodePeerOffer) for other members.
    std::function<void(const std::string& offer)> publish;
    // Returns the last offer of `source`; empty: not published yet. Fails when `source` does not
    // answer.
    std::function<absl::StatusOr<std::string>(const WorldMember& source)> ask;
    std::function<bool()> cancelled;  // returns true when the transition was aborted
    // Waits a moment before an offer is asked for again, or until the transition is aborted.
    std::function<void()> pause;
  };
  // notes and outflow must outlive the object.
  PeerSharing(Options options, state::StreamNotes* notes, state::Outflow* outflow)
      : options_(std::move(options)), notes_(notes), outflow_(outflow), pull_(notes) {}

  // ---- as a target
  [[nodiscard]] state::Pull& pull() { return pull_; }
  [[nodiscard]] const state::Pull& pull() const { return pull_; }
  // Maps the memory that sources on this node offer, and tells them which tensors this member
  // copies itself. `intake` then expects no other copy of these.
  absl::Status TakeFromPeers(const World& from, const std::vector<state::Incoming>& incoming,
                             state::Intake* intake);

  // ---- as a source
  // Offers the memory of the tensors, or publishes an offer without tensors: no target waits for
  // it.
  void PublishOffer(const ProgramState& state);
  // Takes from *outgoing the copies that targets make themselves.
  absl::Status ServePulls(std::vector<state::Outgoing>* outgoing);
  // Tells these targets that the state has the version `step`.
  absl::Status TellReady(uint64_t step, Time deadline);
  // Tells these targets the contents of the constant tensors (kContents) or of the others (kLate).
  absl::Status TellContents(state::NoteKind kind, const std::vector<state::TensorShape>& shapes,
                            Time deadline);
  // Returns the bytes that targets copy themselves. Thread-safe.
  [[nodiscard]] uint64_t bytes_served() const { return bytes_served_; }

 private:
  state::PeerOffer OfferOf(const WorldMember& source);

  const Options options_;
  state::StreamNotes* const notes_;
  state::Outflow* const outflow_;
  state::Pull pull_;
  state::OfferedMemory offered_;
  std::map<MemberId, std::vector<state::Outgoing>> served_;  // by target
  std::atomic<uint64_t> bytes_served_{0};
};

}  // namespace rewire::elastic
