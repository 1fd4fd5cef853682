// Moves the state of one transition: makes the plan, allocates memory, streams and checks. One
// thread ("rewire-stream") does this, so that the member's thread never waits. A second thread of
// low priority ("rewire-prepare") does the work before the stream while the first waits for it.
//
// The member's thread makes, commands and releases a Reshape. The program's thread takes the
// results while it stands at the boundary. `planned` and `streamed` are called from the stream
// thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/settings.h"
#include "reconfig/elastic/member/member_action.h"
#include "reconfig/state/plan/plan.h"
#include "reconfig/state/snapshot/snapshotter.h"
#include "reconfig/state/stream/intake.h"
#include "reconfig/state/stream/outflow.h"
#include "reconfig/state/stream/peer_memory.h"
#include "reconfig/state/stream/pull.h"
#include "rewire/rewire.h"

namespace rewire::elastic {

// A new part of a tensor. Only a tensor whose part changes has a NewPart.
struct NewPart {
  uint32_t tensor = 0;
  state::Box box;
  state::StatePlace place;
};

struct ReshapeContext {
  MemberId self = 0;
  // The registered state after the program has registered everything, in its first update.
  // wait_state returns nullopt before that.
  struct State {
    bool joining = false;
    std::vector<state::PlacedTensor> tensors;
    rewireCallbacks_t callbacks = {};
  };
  std::function<std::optional<State>(Time deadline)> wait_state;
  state::Transport* transport = nullptr;
  state::Budget* budget = nullptr;
  const state::Snapshotter* snapshots = nullptr;
  Duration boundary = milliseconds(SettingDefaults::boundary_ms);
  Duration build = milliseconds(SettingDefaults::build_ms);
  // Called before the plan is made. Fails, naming the tensor, when members have registered
  // different tensors.
  std::function<absl::Status()> check_shapes;
  // REWIRE_PEER_COPY: whether device memory is copied directly inside a node.
  bool peer_copy = true;
  // Publishes the places of this member's tensors (EncodePeerOffer) for other members.
  std::function<void(const std::string& offer)> publish_offer;
  // Returns the last offer of `source`; empty: not published yet. Fails when `source` does not
  // answer.
  std::function<absl::StatusOr<std::string>(const WorldMember& source)> ask_offer;
  // Waits until the state has this version. Returns false at the deadline.
  std::function<bool(uint64_t version, Time deadline)> wait_version;
  std::function<void(absl::StatusOr<uint64_t> plan_hash)> planned;
  std::function<void(absl::Status status, uint64_t bytes_in, uint64_t bytes_out)> streamed;
};

class Reshape {
 public:
  Reshape(ReshapeContext context, MakePlan request);
  ~Reshape();  // joins the stream thread

  void Start(uint64_t step);
  void Finish();
  void Restore(uint64_t version, RestoreSources sources);
  // Ends the transition's access to the state, whether or not its epoch was committed. After the
  // return the state is neither read nor written.
  void Cancel();
  [[nodiscard]] bool finished() const { return finished_.load(); }

  [[nodiscard]] Epoch epoch() const { return request_.epoch; }
  // The allocated parts. Valid after finished(), or once streamed() has reported ok.
  [[nodiscard]] const std::vector<NewPart>& parts() const { return parts_; }
  [[nodiscard]] uint64_t restored_version() const { return version_; }
  // Takes the memory for the snapshots of the new world.
  [[nodiscard]] state::SnapshotSlots::Memory TakeSnapshotMemory() {
    return std::move(snapshot_memory_);
  }
  [[nodiscard]] uint64_t bytes_in() const {
    return pull_->bytes() + (intake_ == nullptr ? 0 : intake_->bytes());
  }
  [[nodiscard]] uint64_t bytes_out() const { return outflow_->bytes_on_wire() + bytes_pulled_; }

 private:
  void Run();
  absl::StatusOr<uint64_t> MakeThePlan();
  absl::Status Allocate();
  // Returns whether the program has, or makes, room for the new part at the address of the old
  // part.
  bool InPlace(uint32_t tensor, const state::Box& box) const;
  void ReserveSnapshots();
  // Writes new memory before the stream comes, so that its pages exist.
  absl::Status Touch(const state::StatePlace& place, uint64_t bytes);
  // Touches the elements of `box` outside the present part, for a part that stays in place.
  absl::Status TouchAround(const state::PlacedTensor& now, const state::Box& box);
  // Turns the plan into incoming_ and outgoing_.
  absl::Status Resolve(const state::Plan& plan);
  absl::Status OpenStream();
  // Maps the memory that sources on this node offer, and tells them which tensors this member
  // copies itself.
  absl::Status SharePeers();
  void PublishOffer();
  state::PeerOffer OfferOf(const WorldMember& source);
  // Moves from outgoing_ to pulled_ the copies that targets make themselves.
  absl::Status ServePulls();
  absl::Status TellReady(uint64_t step, Time deadline);
  absl::Status TellContents(state::NoteKind kind, Time deadline);
  absl::StatusOr<state::StatePlace> SourceOf(const state::BoxCopy& copy) const;
  absl::Status StreamChange(uint64_t step);
  absl::Status StreamRestore();
  absl::Status FinishWire(Duration within);
  // Returns false when cancelled.
  bool WaitFor(const bool* flag);
  [[nodiscard]] bool Cancelled();
  std::vector<state::Outgoing> Select(bool constant) const;

  const ReshapeContext context_;
  const MakePlan request_;
  const state::StreamKey key_;
  state::StateMemory memory_;
  ReshapeContext::State state_;
  std::vector<state::TensorShape> shapes_;
  std::vector<NewPart> parts_;
  std::vector<state::StatePlace> targets_;  // the address of this member's new part of each tensor
  state::SnapshotSlots::Memory snapshot_memory_;
  std::vector<state::Incoming> incoming_;
  std::vector<state::Outgoing> outgoing_;
  std::map<MemberId, std::vector<state::Outgoing>> pulled_;  // by target, which copies these itself
  std::atomic<uint64_t> bytes_pulled_{0};
  state::StreamNotes notes_;
  std::unique_ptr<state::Intake> intake_;
  std::unique_ptr<state::Outflow> outflow_;
  std::unique_ptr<state::Pull> pull_;
  state::OfferedMemory offered_;
  uint64_t version_ = 0;
  RestoreSources sources_;

  Mutex mutex_;
  CondVar changed_;
  bool start_ REWIRE_GUARDED_BY(mutex_) = false;
  bool finish_ REWIRE_GUARDED_BY(mutex_) = false;
  bool restore_ REWIRE_GUARDED_BY(mutex_) = false;
  bool cancelled_ REWIRE_GUARDED_BY(mutex_) = false;
  uint64_t step_ REWIRE_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> finished_{false};
  std::thread thread_;
};

}  // namespace rewire::elastic
