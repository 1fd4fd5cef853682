// Moves the state of one transition: makes the plan, streams and checks, in the order of the step.
// One thread ("rewire-stream") does this, so that the member's thread never waits. A second thread
// of low priority ("rewire-prepare") does the work before the stream while the first waits for it.
// NewParts allocates the memory, and PeerSharing makes the copies inside the node.
//
// The member's thread makes, commands and releases a Reshape. The program's thread takes the
// results while it stands at the boundary. `planned` and `streamed` are called from the stream
// thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/settings.h"
#include "reconfig/elastic/member/member_action.h"
#include "reconfig/elastic/participant/new_parts.h"
#include "reconfig/elastic/participant/peer_sharing.h"
#include "reconfig/state/plan/member_plan.h"
#include "reconfig/state/snapshot/snapshotter.h"
#include "reconfig/state/stream/intake.h"
#include "reconfig/state/stream/outflow.h"
#include "reconfig/state/stream/peer_memory.h"
#include "reconfig/state/stream/placed_check.h"
#include "rewire/rewire.h"

namespace rewire::elastic {

struct ReshapeContext {
  MemberId self = 0;
  // Returns nullopt until the program has registered everything, in its first update.
  std::function<std::optional<ProgramState>(Time deadline)> wait_state;
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
  // Called first: makes the ids of the next world's groups, which no member builds without.
  std::function<absl::Status()> mint_groups;
  std::function<void(absl::StatusOr<uint64_t> plan_hash)> planned;
  std::function<void(absl::Status status, uint64_t bytes_in, uint64_t bytes_out)> streamed;
};

class Reshape {
 public:
  Reshape(ReshapeContext context, MakePlan request);
  ~Reshape();  // does End()

  void Start(uint64_t step);
  void Finish();
  // recheck: whether the kept copies may change while they are read (SnapshotSlots::MayChange).
  void Restore(uint64_t version, RestoreSources sources, bool recheck);
  // Ends the transition's access to the state, whether or not its epoch was committed. After the
  // return the state is neither read nor written.
  void Cancel();
  // Does Cancel() and joins the threads; parts() is then valid.
  void End();
  [[nodiscard]] bool finished() const { return finished_.load(); }

  [[nodiscard]] Epoch epoch() const { return request_.epoch; }
  // The allocated parts. Valid after finished() or End(), or once streamed() has reported ok.
  [[nodiscard]] const std::vector<NewPart>& parts() const { return parts_.parts(); }
  // The layout of the next world; valid with parts().
  [[nodiscard]] const SharedLayout& next_layout() const { return new_layout_; }
  [[nodiscard]] uint64_t restored_version() const { return version_; }
  // Takes the memory for the snapshots of the new world.
  [[nodiscard]] state::SnapshotSlots::Memory TakeSnapshotMemory() {
    return std::move(snapshot_memory_);
  }
  [[nodiscard]] uint64_t bytes_in() const {
    return sharing_.pull().bytes() + (intake_ == nullptr ? 0 : intake_->bytes());
  }
  [[nodiscard]] uint64_t bytes_out() const {
    return outflow_.bytes_on_wire() + sharing_.bytes_served();
  }

 private:
  void Run();
  absl::StatusOr<uint64_t> MakeThePlan();
  void ReserveSnapshots();
  // Makes the layouts of both worlds.
  absl::Status SeatWorlds();
  // Turns the plan into incoming_ and outgoing_.
  absl::Status Resolve(const state::MemberPlan& plan);
  [[nodiscard]] uint64_t HashOfWorlds() const;
  absl::Status OpenStream();
  absl::Status StreamChange(uint64_t step);
  absl::Status StreamRestore();
  absl::Status FinishWire(Duration within);
  // Hashes all that this member has received and copied.
  absl::Status CheckPlaced();
  [[nodiscard]] PeerSharing::Options SharingOptions();
  // Returns false when cancelled.
  bool WaitFor(const bool* flag);
  [[nodiscard]] bool Cancelled();
  std::vector<state::Outgoing> Select(bool constant) const;

  const ReshapeContext context_;
  const MakePlan request_;
  const state::StreamKey key_;
  ProgramState state_;
  std::vector<state::TensorShape> shapes_;
  // The layouts of the state in the two worlds.
  SharedLayout old_layout_, new_layout_;
  state::SeatedLayout from_, to_;
  NewParts parts_;
  state::SnapshotSlots::Memory snapshot_memory_;
  std::vector<state::Incoming> incoming_;
  std::vector<state::Outgoing> outgoing_;
  state::StreamNotes notes_;
  std::unique_ptr<state::Intake> intake_;
  state::Outflow outflow_;
  PeerSharing sharing_;
  state::PlacedCheck placed_check_;
  uint64_t version_ = 0;
  RestoreSources sources_;
  bool recheck_ = false;

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
