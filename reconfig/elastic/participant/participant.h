// This process as a member of the job. One thread ("rewire-member") runs the state machine Member:
// the thread connects Member to the agent and passes its actions to communicators, stream and
// snapshots. The thread never waits for these actions, so it can also send the heartbeats.
//
// A process has one Participant, which StartParticipant() makes (process.h). Thread-safe, except
// for the methods of the program's thread.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/event_loop.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/settings.h"
#include "reconfig/elastic/member/member.h"
#include "reconfig/elastic/participant/agent_link.h"
#include "reconfig/elastic/participant/communicators.h"
#include "reconfig/elastic/participant/death_witness.h"
#include "reconfig/elastic/participant/group_communicators.h"
#include "reconfig/elastic/participant/names.h"
#include "reconfig/elastic/participant/registered_state.h"
#include "reconfig/elastic/participant/reshape.h"
#include "reconfig/elastic/participant/update_gate.h"
#include "reconfig/elastic/participant/update_snapshots.h"
#include "reconfig/state/stream/tcp_transport.h"
#include "rewire/rewire.h"

namespace rewire::elastic {

struct ParticipantOptions {
  std::string socket;
  MemberId member = 0;
  bool cooperates = false;
  Duration heartbeat = milliseconds(SettingDefaults::heartbeat_ms);
  Duration boundary = milliseconds(SettingDefaults::boundary_ms);
  Duration build = milliseconds(SettingDefaults::build_ms);
  Duration silence = milliseconds(SettingDefaults::silence_ms);
  uint64_t budget_bytes = uint64_t{SettingDefaults::budget_mb} << 20;
  bool buddy = true;
  bool peer_copy = true;

  // Limit of the program's waits for a decision at a boundary, and after a loss.
  [[nodiscard]] Duration LongestDecision() const { return build + 10 * boundary; }
  [[nodiscard]] Duration LongestRecovery() const { return silence + LongestDecision(); }
  // After a loss the member gives up later than the program does.
  [[nodiscard]] MemberOptions ForMember() const;
};

// Limit of the waits in an exit handler of a program that has not detached.
constexpr Duration kProgramEnd = seconds(5);

// The world as the program may see it at this moment.
struct WorldView {
  World world;
  std::optional<uint32_t> slot;
  bool joining = false;
  std::vector<WorldMember> leaving{};  // set for a joiner: see Welcome
};

// The result of one pass through the boundary.
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
  // Ends the connection and joins all threads. The object stays valid, but inactive, for its other
  // holders.
  void End();

  // ---- the program's thread -------------------------------------------------------------------
  // Waits until the agent has accepted a connection of this process at least once.
  absl::Status WaitConnected(Time deadline);
  // Waits for the first world. Fails when the agent does not answer within `patience`.
  absl::StatusOr<WorldView> WaitEntered(Duration patience);
  [[nodiscard]] WorldView View() const;
  absl::StatusOr<UniqueIdBytes> UniqueId(const std::string& name);
  // Also fills `group`, whose size is set. Call after rewireSetParallel(). Defined in group_id.cc.
  absl::StatusOr<UniqueIdBytes> GroupId(const std::string& name, const std::string& axes,
                                        rewireGroup_t* group);
  RegisteredState* registered() { return &state_; }
  UpdateGate* gate() { return &gate_; }
  // Call after gate()->Begin() has returned false. Stands at the boundary when necessary and waits
  // for the snapshot. kContinue: the update has begun. kWorldChanged: the change is complete, and
  // the update has begun in the new world. kRepeat, kLeave: the update has not begun.
  absl::StatusOr<BoundaryResult> PassBoundary();
  // Call after gate()->End() has returned true.
  void AfterUpdate();
  absl::StatusOr<BoundaryResult> Recover();
  // Leaves the job: waits until the member's thread has given the message to the connection with
  // the agent. A drained member also waits until the agent closes the connection, which means that
  // the drain has ended.
  void Leave(Time deadline);
  // Ends, before the program's exit handlers run, what Rewire's threads do with the program: no
  // callback begins, no change begins, and the state is neither read nor written. Waits for what
  // runs until the deadline. The connection stays, so that the process still counts as a member.
  void EndProgram(Time deadline);
  // Call after End(). Has the program free the memory that it allocated for changes that it does
  // not take part in any more.
  void FreeDiscarded() { state_.RunDiscards(); }

  // ---- any thread -----------------------------------------------------------------------------
  // Returns false when no drain is possible: this process is not in a world, joins one, or is out
  // of the job.
  bool Reclaim(Duration within);
  void Created(const CommunicatorCreated& created);
  void Destroyed(const CommunicatorId& communicator, uint32_t rank);
  void Pinned(const CommunicatorId& communicator, const std::string& reason);
  // Waits until the agent has been sent the events before this call, or no agent is connected.
  void AwaitSent(Time deadline);
  bool ComesWithBuild(const CommunicatorId& communicator);
  void Moved();
  [[nodiscard]] bool stopped() const { return stopped_.load(); }
  [[nodiscard]] Epoch epoch() const { return epoch_.load(std::memory_order_relaxed); }
  [[nodiscard]] const ParticipantOptions& options() const { return options_; }

 private:
  // An input of another thread for the member's thread.
  using Input = std::function<void(Member* member, Time now, Member::Out* out)>;
  // The data of Adopt for the program's thread.
  struct Adoption {
    WorldRecord record;
    TransitionKind kind = TransitionKind::kBoundary;
    std::optional<uint32_t> slot;
    std::shared_ptr<Reshape> reshape;
  };

  explicit Participant(const ParticipantOptions& options);

  // Defined in participant.cc; run on the member's thread.
  void Run();
  void RefuseAgent();
  // Ends every wait of the program with the reason, because the process is no longer part of the
  // job. End() also calls Finish(), on its caller's thread.
  void Finish(const std::string& reason);
  void Feed(Time now, Member::Out* out);
  [[nodiscard]] BoundaryInfo Describe();
  void ReapReshapes();

  // Defined in actions.cc; run on the member's thread.
  void Perform(Time now, const MemberAction& action);
  void Do(Time now, const SendMessage& action);
  void Do(Time now, const EnterWorld& action);
  void Do(Time now, const AwaitWorld& action);
  void Do(Time now, const MintIds& action);
  void Do(Time now, const MakePlan& action);
  void Do(Time now, const BuildGenerations& action);
  void Do(Time now, const PledgeCuts& action);
  void Do(Time now, const PledgeBoundary& action);
  void Do(Time now, const DecideCuts& action);
  void Do(Time now, const ReleaseBoundary& action);
  void Do(Time now, const StartStream& action);
  void Do(Time now, const FinishStream& action);
  void Do(Time now, const DescribeBoundary& action);
  void Do(Time now, const RestoreFrom& action);
  void Do(Time now, const Adopt& action);
  void Do(Time now, const AbandonEpoch& action);
  void Do(Time now, const RetireGenerations& action);
  void Do(Time now, const AbortCurrent& action);
  void Do(Time now, const Resume& action);
  void Do(Time now, const StopProcess& action);
  // Cancels the reshape and frees its memory later, in ReapReshapes(). Defined in participant.cc.
  void Discard(std::shared_ptr<Reshape> reshape);
  // Mints the ids of the target world's groups that this member mints for. Thread-safe. Defined in
  // group_id.cc.
  absl::Status MintGroups(const MakePlan& action);
  std::vector<CommunicatorCounter> Counters() const;
  static std::vector<Position> Positions();

  // Defined in boundary.cc; run on the program's thread.
  absl::StatusOr<BoundaryResult> AwaitResume(Duration longest);
  // See RegisteredState::SetReady().
  absl::Status SetReady();
  [[nodiscard]] bool Adopting() const;
  // Returns the registered state of the present world; nullopt at the deadline.
  std::optional<ProgramState> WaitState(Time deadline);
  // Takes adoption_ and runs the callbacks of a committed change.
  void TakeAdoption(BoundaryResult* result);
  // Places the new parts of an adopted change, and tells the program.
  void AdoptParts(Reshape* reshape);
  // Returns whether copies can be made: the member is in a world without a loss, and tensors are
  // registered.
  [[nodiscard]] bool MayStartSnapshots() const;
  // Fails when the slot before this one has registered other tensors.
  absl::Status CheckNeighbour();
  // Waits for the decision about a swap that is due at this update, and swaps.
  absl::Status SwapPending();
  [[nodiscard]] CutRefusal UpdateBegun(uint64_t step) const;
  void StartSnapshots(state::SnapshotSlots::Memory memory = {});

  const ParticipantOptions options_;
  const uint64_t incarnation_;
  // Shared with callbacks that may come after the participant has ended.
  const std::shared_ptr<Inbox<Input>> inbox_ = std::make_shared<Inbox<Input>>();
  state::Budget budget_;
  std::unique_ptr<state::TcpTransport> transport_;
  UpdateGate gate_;
  Names names_;
  GroupCommunicators groups_;
  SentEvents sent_events_;
  // Owned by the program's thread; also read through the tensor that carries the number to joiners.
  uint64_t updates_ = 0;
  bool neighbour_checked_ = false;
  RegisteredState state_{&updates_};
  UpdateSnapshots snapshots_;

  OwnerThread member_thread_;
  // Owned by the member's thread.
  std::unique_ptr<Member> member_;
  std::unique_ptr<DeathWitness> witness_;  // must outlive the connection of link_
  AgentLink link_;
  std::shared_ptr<Reshape> reshape_;
  bool kept_may_change_ = false;  // at a Describe() since the last change of the world
  std::list<std::shared_ptr<Reshape>> leaving_;
  Heartbeat heartbeat_;  // its counters are read once for each heartbeat
  Time counted_{};
  bool ending_ = false;  // EndProgram() has been called
  std::string refusal_;  // why the process never became a member; "": it may become or is one

  mutable Mutex mutex_;
  CondVar changed_;
  bool was_connected_ REWIRE_GUARDED_BY(mutex_) = false;
  std::optional<uint32_t> missing_ REWIRE_GUARDED_BY(mutex_);  // see AwaitWorld
  std::optional<WorldView> view_ REWIRE_GUARDED_BY(mutex_);
  Key secret_ REWIRE_GUARDED_BY(mutex_);
  std::optional<Adoption> adoption_ REWIRE_GUARDED_BY(mutex_);
  // From a commit until the program's thread has adopted it: the registered state is that of the
  // world before.
  bool adopting_ REWIRE_GUARDED_BY(mutex_) = false;
  bool left_ REWIRE_GUARDED_BY(mutex_) = false;
  bool drained_ REWIRE_GUARDED_BY(mutex_) = false;
  bool dismissed_ REWIRE_GUARDED_BY(mutex_) = false;
  bool state_ended_ REWIRE_GUARDED_BY(mutex_) = false;  // see EndProgram()
  bool stop_ REWIRE_GUARDED_BY(mutex_) = false;
  std::atomic<bool> standing_{false};
  std::atomic<bool> moved_{false};    // Positions() may have changed
  std::atomic<bool> stopped_{false};  // the process is no longer part of the job
  std::atomic<Epoch> epoch_{0};       // of view_
  std::thread thread_;
};

}  // namespace rewire::elastic
