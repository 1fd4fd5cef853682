// The member that this process is: one thread ("rewire-member") around the pure Member, which it
// connects to the agent and whose actions it has done by communicators, stream and snapshots. That
// thread never waits for any of them, so it also sends the heartbeats.
//
// One per process, made by EnsureParticipant() (communicators.h). Thread-safe, except what is
// marked as the program's thread's.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/c_api.h"
#include "reconfig/participant/agent_link.h"
#include "reconfig/participant/communicators.h"
#include "reconfig/participant/inbox.h"
#include "reconfig/participant/names.h"
#include "reconfig/participant/net_plugin.h"
#include "reconfig/participant/reshape.h"
#include "reconfig/participant/update_gate.h"
#include "reconfig/stream/tcp_transport.h"

namespace rewire {

struct ParticipantOptions {
  std::string socket;
  MemberId member = 0;
  bool cooperates = false;
  Duration heartbeat = milliseconds(500);
  Duration boundary = seconds(30);
  Duration build = seconds(60);
  Duration silence = seconds(3);
  uint64_t budget_bytes = uint64_t{1} << 30;
  bool buddy = true;
  bool peer_copy = true;
};

// The world as the program must see it.
struct WorldView {
  World world;
  std::optional<uint32_t> slot;
  bool joining = false;
  std::vector<WorldMember> leaving{};  // for a joiner: see Welcome
};

// What a pass through the boundary did.
struct BoundaryResult {
  ResumeKind kind = ResumeKind::kContinue;
  uint64_t pause_ns = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
};

class Participant {
 public:
  static absl::StatusOr<std::unique_ptr<Participant>> Start(const ParticipantOptions& options);
  ~Participant();
  // Ends the connection and joins all threads. Whoever still holds the object finds it at rest.
  void End();

  // ---- the program's thread -------------------------------------------------------------------
  absl::StatusOr<WorldView> WaitEntered(Time deadline);
  [[nodiscard]] WorldView View() const;
  absl::StatusOr<UniqueIdBytes> UniqueId(const std::string& name);
  void SetCallbacks(const rewireCallbacks_t& callbacks);
  void AddTensor(PlacedTensor tensor);
  [[nodiscard]] std::vector<PlacedTensor> Tensors() const;

  UpdateGate* gate() { return &gate_; }
  // After gate()->Begin() gave false: stands if it must, waits for the snapshot. kContinue: the
  // update has begun. kWorldChanged: the change is done, and the update has begun in the new world.
  absl::StatusOr<BoundaryResult> PassBoundary();
  // After gate()->End() gave true.
  void AfterUpdate();
  absl::StatusOr<BoundaryResult> Recover();
  // Leaves the job: tells the agent and waits until it was written. A member that was drained waits
  // until the change it left by has ended, which the agent says by closing the connection.
  void Leave(Time deadline);

  // ---- anybody --------------------------------------------------------------------------------
  // False: this process is not in a world, and nobody can drain it.
  bool Reclaim(Duration within);
  void Created(const CommunicatorCreated& created);
  void Destroyed(const CommunicatorId& communicator);
  bool ComesWithBuild(const CommunicatorId& communicator);
  void Moved();
  [[nodiscard]] bool stopped() const { return stopped_.load(); }
  [[nodiscard]] const ParticipantOptions& options() const { return options_; }
  [[nodiscard]] const Budget& budget() const { return budget_; }
  [[nodiscard]] const Snapshotter* snapshots() const { return snapshots_.get(); }
  [[nodiscard]] TransportCounters stream_counters() const;

 private:
  // What Adopt left for the program's thread.
  struct Adoption {
    WorldRecord record;
    TransitionKind kind = TransitionKind::kBoundary;
    std::optional<uint32_t> slot;
    std::shared_ptr<Reshape> reshape;
  };

  explicit Participant(const ParticipantOptions& options);

  // participant.cc, the member's thread.
  void Run();
  void RefuseAgent();
  // The process is not part of the job any more: every wait of the program ends with the reason.
  void Finish(const std::string& reason);
  void Feed(Time now, Member::Out* out);
  [[nodiscard]] BoundaryInfo Describe() const;
  void ReapReshapes();

  // actions.cc, the member's thread.
  void Perform(Time now, const MemberAction& action);
  void OnEnterWorld(const EnterWorld& action);
  void OnMakePlan(const MakePlan& action);
  void OnBuild(const BuildGenerations& action);
  void OnPledgeCuts(const PledgeCuts& action);
  void OnAdopt(const Adopt& action);
  void LetGo(std::shared_ptr<Reshape> reshape);
  std::vector<CommunicatorCounter> Counters() const;
  static std::vector<Position> Positions();

  // boundary.cc, the program's thread.
  absl::StatusOr<BoundaryResult> Stand(Duration longest);
  // Runs the callbacks of a committed change. reshape: whose parts they are.
  void TakeAdoption(BoundaryResult* result);
  void RunDiscards();
  // Everything is registered.
  void Ready();
  void StartSnapshots(SnapshotSlots::Memory memory = {});
  void TakeSnapshot();
  // For at most REWIRE_SILENCE_MS of the time that this process runs.
  bool WaitTaken();
  // The version's copies, when the transition that it was streamed for has been called off.
  void CopyLeftOut();
  std::string NodeOf(const WorldMember& member) const;
  absl::Status CheckShapes(const World& from) const;
  // Registered device memory still is what was registered.
  absl::Status CheckAllocations() const;
  // What another member answers to a name; nothing: it does not know it (yet).
  absl::StatusOr<std::optional<std::string>> Ask(const WorldMember& member, std::string_view name,
                                                 Duration within = seconds(1)) const;
  std::optional<ReshapeContext::State> WaitReady(Time deadline);

  const ParticipantOptions options_;
  const uint64_t incarnation_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  Budget budget_;
  std::unique_ptr<TcpTransport> transport_;
  std::unique_ptr<Snapshotter> snapshots_;
  UpdateGate gate_;
  Names names_;
  // Shared with the builders' threads, which may outlive the participant.
  const std::shared_ptr<NetPlugin> net_plugin_ = std::make_shared<NetPlugin>();

  // Of the member's thread.
  std::unique_ptr<Member> member_;
  AgentLink link_;
  std::shared_ptr<Reshape> reshape_;
  std::list<std::shared_ptr<Reshape>> leaving_;
  NetCounts net_counts_;
  MoeCounts moe_counts_;
  Time counted_{};

  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<WorldView> view_ REWIRE_GUARDED_BY(mutex_);
  Key names_key_ REWIRE_GUARDED_BY(mutex_);
  Key secret_ REWIRE_GUARDED_BY(mutex_);
  std::vector<PlacedTensor> tensors_ REWIRE_GUARDED_BY(mutex_);
  rewireCallbacks_t callbacks_ REWIRE_GUARDED_BY(mutex_) = {};
  std::optional<Adoption> adoption_ REWIRE_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, void*>> discards_ REWIRE_GUARDED_BY(mutex_);
  bool ready_ REWIRE_GUARDED_BY(mutex_) = false;  // the first update has been called
  bool snapshots_started_ REWIRE_GUARDED_BY(mutex_) = false;
  bool left_ REWIRE_GUARDED_BY(mutex_) = false;
  bool drained_ REWIRE_GUARDED_BY(mutex_) = false;
  bool dismissed_ REWIRE_GUARDED_BY(mutex_) = false;
  bool stop_ REWIRE_GUARDED_BY(mutex_) = false;
  std::atomic<bool> standing_{false};
  std::atomic<bool> moved_{false};    // Positions() may have changed
  std::atomic<bool> stopped_{false};  // out of the job
  static constexpr uint64_t kNone = UINT64_MAX;
  // The version that goes to the next world's members.
  std::atomic<uint64_t> streamed_version_{kNone};
  // The program's thread's alone, read through the tensor that carries it to joiners.
  uint64_t updates_ = 0;
  uint64_t uncopied_ = kNone;  // the version whose copies were left out; of the program's thread
  std::thread thread_;
};

// A unique id of this process's NCCL.
absl::StatusOr<UniqueIdBytes> MintUniqueId();
// Who owns this process's communicators; nullptr: nobody.
Communicators* GetCommunicators();
// The process's participant, if it has one that may be used (not in a forked child).
std::shared_ptr<Participant> CurrentParticipant();
// As EnsureParticipant(), with the reason when it cannot be.
absl::StatusOr<std::shared_ptr<Participant>> StartParticipant(bool cooperates);
// Joins and forgets it. The process cannot become a member again.
void EndParticipant();

}  // namespace rewire
