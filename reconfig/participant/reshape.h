// The state's side of one transition: makes the plan, allocates, streams, checks. A thread of its
// own ("rewire-stream") does it, so that the member's thread never waits; what comes before the
// stream is done by another of low priority ("rewire-prepare"), for which it waits.
//
// Made, told and let go by the member's thread; Adopt side (Take...) by the program's thread while
// it stands at the boundary. Events come from the job's own thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/c_api.h"
#include "reconfig/plan/plan.h"
#include "reconfig/snapshot/snapshotter.h"
#include "reconfig/stream/intake.h"
#include "reconfig/stream/offered_memory.h"
#include "reconfig/stream/outflow.h"
#include "reconfig/stream/pull.h"
#include "reconfig/transition/member_action.h"

namespace rewire {

// A new part of a tensor. Only tensors whose part changes have one.
struct NewPart {
  uint32_t tensor = 0;
  Box box;
  StatePlace place;
};

struct ReshapeContext {
  MemberId self = 0;
  // The program has registered all it will (it is in its first update): the state as it is then.
  // Nothing: not yet.
  struct State {
    bool joining = false;
    std::vector<PlacedTensor> tensors;
    rewireCallbacks_t callbacks = {};
  };
  std::function<std::optional<State>(Time deadline)> wait_state;
  Transport* transport = nullptr;
  Budget* budget = nullptr;
  const Snapshotter* snapshots = nullptr;
  Duration boundary = seconds(30);
  Duration build = seconds(60);
  // Before the plan is made: everybody registered the same tensors, or which one differs.
  std::function<absl::Status()> check_shapes;
  // REWIRE_PEER_COPY: whether device memory is copied directly inside a node.
  bool peer_copy = true;
  // Where this member's tensors lie (EncodePeerOffer), for others to ask.
  std::function<void(const std::string& offer)> publish_offer;
  // What `source` published last; "": nothing yet. Not ok: it cannot be asked.
  std::function<absl::StatusOr<std::string>(const WorldMember& source)> ask_offer;
  // False: not yet.
  std::function<bool(uint64_t version, Time deadline)> wait_version;
  std::function<void(absl::StatusOr<uint64_t> plan_hash)> planned;
  std::function<void(absl::Status status, uint64_t bytes_in, uint64_t bytes_out)> streamed;
};

class Reshape {
 public:
  Reshape(ReshapeContext context, MakePlan request);
  ~Reshape();  // joins

  void Start(uint64_t step);
  void Finish();
  void Restore(uint64_t version, RestoreSources sources);
  // The epoch will not come, or has come: when it returns the state is neither read nor written any
  // more.
  void Cancel();
  [[nodiscard]] bool finished() const { return finished_.load(); }

  [[nodiscard]] Epoch epoch() const { return request_.epoch; }
  // After finished(), or once streamed() has said ok: what was allocated.
  [[nodiscard]] const std::vector<NewPart>& parts() const { return parts_; }
  [[nodiscard]] uint64_t restored_version() const { return version_; }
  // For the snapshots of the new world.
  [[nodiscard]] SnapshotSlots::Memory TakeSnapshotMemory() { return std::move(snapshot_memory_); }
  [[nodiscard]] uint64_t bytes_in() const {
    return pull_->bytes() + (intake_ == nullptr ? 0 : intake_->bytes());
  }
  [[nodiscard]] uint64_t bytes_out() const { return outflow_->bytes_on_wire() + bytes_pulled_; }

 private:
  void Run();
  absl::StatusOr<uint64_t> MakeThePlan();
  absl::Status Allocate();
  // Whether the program has, or makes, room for the new part where the old one lies.
  bool InPlace(uint32_t tensor, const Box& box) const;
  void ReserveSnapshots();
  // Has fresh memory be there before the stream comes.
  absl::Status Touch(const StatePlace& place, uint64_t bytes);
  // What a part that stays in place reaches over and did not.
  absl::Status TouchAround(const PlacedTensor& now, const Box& box);
  // Turns the plan into what comes and what goes.
  absl::Status Resolve(const Plan& plan);
  absl::Status OpenStream();
  // Tells members on this node where this member's state lies, and maps what comes from them.
  absl::Status SharePeers();
  void PublishOffer();
  PeerOffer OfferOf(const WorldMember& source);
  // Splits what the targets copy themselves from what is sent to them.
  // Moves what targets copy by themselves from outgoing_ to pulled_.
  absl::Status ServePulls();
  absl::Status TellReady(uint64_t step, Time deadline);
  absl::Status TellContents(NoteKind kind, Time deadline);
  absl::StatusOr<StatePlace> SourceOf(const BoxCopy& copy) const;
  absl::Status StreamChange(uint64_t step);
  absl::Status StreamRestore();
  absl::Status FinishWire(Duration within);
  // False when cancelled.
  bool WaitFor(const bool* flag);
  [[nodiscard]] bool Cancelled();
  std::vector<Outgoing> Select(bool constant) const;

  const ReshapeContext context_;
  const MakePlan request_;
  const StreamKey key_;
  StateMemory memory_;
  ReshapeContext::State state_;
  std::vector<TensorShape> shapes_;
  std::vector<NewPart> parts_;
  std::vector<StatePlace> targets_;  // where this member's part of each tensor will lie
  SnapshotSlots::Memory snapshot_memory_;
  std::vector<Incoming> incoming_;
  std::vector<Outgoing> outgoing_;
  std::map<MemberId, std::vector<Outgoing>> pulled_;  // by target: copied by it
  std::atomic<uint64_t> bytes_pulled_{0};
  StreamNotes notes_;
  std::unique_ptr<Intake> intake_;
  std::unique_ptr<Outflow> outflow_;
  std::unique_ptr<Pull> pull_;
  OfferedMemory offered_;
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

}  // namespace rewire
