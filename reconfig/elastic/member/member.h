// A member's state machine: the steps of one training process in a transition (docs/protocol.md).
//
// Pure: no clock, no I/O, no threads. Thread-compatible: owned by one thread of
// reconfig/elastic/participant, or by the simulator. Every input carries the time and appends the
// required actions to `out`. The owner does the actions in that order and feeds the answers back,
// never from inside an input. Answers about another epoch are dropped, so an owner may answer late.
// Call OnTick at the latest at NextDeadline().
//
// Rules: a message of another epoch does nothing and is counted. A member never guesses: after
// Verified the member continues only when it knows whether the commit happened. The leader tells
// the member, after a reconnection if needed. Before Verified a member may give up by itself,
// because without its Verified no commit is possible. After a loss there is no old world: the
// member waits or stops.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/settings.h"
#include "reconfig/elastic/member/member_action.h"
#include "reconfig/elastic/protocol/planted_bug.h"

namespace rewire::elastic {

struct MemberOptions {
  MemberId member = 0;
  uint64_t incarnation = 0;
  uint32_t pid = 0;
  bool cooperates = false;
  std::string data_address;
  Duration heartbeat = milliseconds(SettingDefaults::heartbeat_ms);
  // Limit at a planned boundary without Verified; then the old world continues.
  Duration boundary = milliseconds(SettingDefaults::boundary_ms);
  // Limit after Verified without the decision, or for joining without contact; then stop. After a
  // loss Verified may come before the others have built.
  Duration undecided = seconds(120);
  // Limit after a loss without a new world; then stop.
  Duration recover = seconds(400);
  PlantedBug planted_bug = PlantedBug::kNone;  // tests only
};

// The content of AtBoundary about this member's state; see messages.h.
struct BoundaryInfo {
  uint64_t live_version = 0;
  bool live_whole = true;
  std::vector<uint64_t> own_snapshots;
  std::vector<uint64_t> buddy_snapshots;
  StateNeeds needs;
};

// The transition that a member takes part in. Part of Member.
struct MemberWork {
  Prepare prepare;
  Time build_by{};
  std::optional<Build> build;
  std::optional<uint64_t> plan_hash;
  bool built = false;
  bool prepared = false;
  std::vector<CommunicatorCounter> counters;
  std::optional<Propose> proposed;  // the round that was pledged or is being requested
  bool pledged = false;
  bool armed = false;
  bool entered = false;  // OnEntered came before the commit; Entered is to be sent after the commit
  std::optional<Restore> restore;
  bool described = false;  // the boundary's versions are current
  bool finishing = false;  // FinishStream or RestoreFrom was given
  bool reported = false;   // AtBoundary was sent
  bool verified = false;   // Verified{ok} was sent: from now on only the leader decides
  Time verified_at{};
  bool from_before = false;  // began before the present connection
};

class Member {
 public:
  explicit Member(MemberOptions options) : options_(std::move(options)) {}

  using Out = std::vector<MemberAction>;

  // ---- the agent ------------------------------------------------------------------------------
  // A connection exists (the first, or a new one): sends Hello and reports every communicator and
  // every position. The owner keeps reconnecting until StopProcess or OnFinished.
  void OnConnected(Time now, Out* out);
  void OnDisconnected(Time now, Out* out);
  void OnMessage(Time now, const Message& message, Out* out);

  // ---- the program ----------------------------------------------------------------------------
  // A program may make and destroy several ranks of one communicator, one after the other; `held`
  // has the new rank alone. The leader gets all the ranks in one report.
  void OnCommunicatorCreated(Time now, const CommunicatorCreated& created, Out* out);
  // reason: why the communicator cannot be swapped; empty: it can. No effect on an unknown
  // communicator.
  void OnCommunicatorPinned(Time now, const CommunicatorId& communicator, const std::string& reason,
                            Out* out);
  void OnCommunicatorDestroyed(Time now, const CommunicatorId& communicator, uint32_t rank,
                               Out* out);
  // The program's thread stands at an update boundary: at a pledged step, after AbortCurrent, as a
  // joiner in its first update, or because of DescribeBoundary. The thread stands until Resume or
  // StopProcess. Resume comes at once if the reason has gone since the thread stopped.
  void OnBoundary(Time now, const BoundaryInfo& info, Out* out);
  void OnReclaim(Time now, Duration within, Out* out);  // SIGTERM
  void OnFinished(Time now, Out* out);                  // the program detached

  // ---- answers to actions ---------------------------------------------------------------------
  // slots: of the group communicator's group in the new world, ascending; empty: no group.
  void OnMinted(Time now, Epoch epoch, const CommunicatorId& communicator,
                std::vector<uint32_t> slots, const absl::StatusOr<UniqueIdBytes>& id, Out* out);
  void OnPlanned(Time now, Epoch epoch, const absl::StatusOr<uint64_t>& plan_hash, Out* out);
  // counters: one per communicator, and kUpdateBoundary with the number of updates begun.
  void OnBuilt(Time now, Epoch epoch, const absl::Status& status,
               std::vector<CommunicatorCounter> counters, Out* out);
  // refusal: nullopt when the pledge was given.
  void OnPledged(Time now, Epoch epoch, uint32_t round, const std::optional<CutRefusal>& refusal,
                 std::vector<CommunicatorCounter> counters, Out* out);
  void OnStreamed(Time now, Epoch epoch, const absl::Status& status, uint64_t bytes_in,
                  uint64_t bytes_out, Out* out);
  void OnEntered(Time now, Epoch epoch, uint64_t pause_ns, Out* out);
  // positions: of all communicators; one that is missing has no generation any more. Reports each
  // position that has changed.
  void OnPositions(Time now, const std::vector<Position>& positions, Out* out);

  // counts: the content of the next heartbeat.
  void OnTick(Time now, const Heartbeat& counts, Out* out);
  [[nodiscard]] std::optional<Time> NextDeadline() const;

  // ---- status ---------------------------------------------------------------------------------
  [[nodiscard]] Epoch epoch() const { return record_.world.epoch; }
  [[nodiscard]] const WorldRecord& record() const { return record_; }
  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] bool standing() const { return standing_; }
  [[nodiscard]] uint64_t dropped_messages() const { return dropped_; }

 private:
  struct Incoming;

  void OnWelcome(Time now, const Welcome& m, Out* out);
  void OnPrepare(Time now, const Prepare& m, Out* out);
  void OnPropose(const Propose& m, Out* out);
  void OnDecide(Time now, const Decide& m, Out* out);
  void OnRestore(const Restore& m, Out* out);
  void OnCommit(Time now, const Commit& m, Out* out);
  void OnLost(Time now, const Lost& m, Out* out);

  void TakeCommitted(Time now, const WorldRecord& record, Out* out);
  // Returns the present identity of a communicator.
  [[nodiscard]] CommunicatorId Present(const CommunicatorId& communicator) const;
  // Gives the communicators their ranks in the committed world, and the group communicators their
  // new identities.
  void MoveCommunicators(const MemberWork& work, uint32_t slot, Out* out);
  void TryPrepared(Time now, Out* out);
  void TryBoundary(Time now, Out* out);
  // Returns whether there is a reason to stand still before update `version`.
  [[nodiscard]] bool StandsFor(uint64_t version) const;
  void GiveUp(Time now, Out* out);
  // Drops the current transition. The program continues in the old world if it can.
  void Drop(const std::string& reason, Out* out);
  void Release(ResumeKind kind, Out* out);
  void Stop(const std::string& reason, Out* out);
  void Send(Message message, Out* out);
  [[nodiscard]] bool Current(Epoch epoch);
  [[nodiscard]] std::optional<Time> GiveUpAt() const;

  const MemberOptions options_;
  RunningClock clock_{seconds(2)};  // the clock of all deadlines
  bool connected_ = false;
  bool welcomed_ = false;  // welcomed by the leader of the present connection
  bool entered_world_ = false;
  bool joining_ = false;
  bool broken_ = false;      // was told of a loss
  std::set<MemberId> lost_;  // members of the present world that this member was told are lost
  bool standing_ = false;
  bool finished_ = false;
  bool stopped_ = false;
  Key names_key_;
  WorldRecord record_;  // the world that this member believes is committed; epoch 0: not told yet
  Epoch entered_epoch_ = 0;
  Entered entered_;    // as reported, to be reported again after reconnecting
  Epoch highest_ = 0;  // highest epoch that this member was asked to prepare
  std::optional<MemberWork> work_;
  BoundaryInfo boundary_;
  Time standing_since_{};
  Time disconnected_since_{};
  Time broken_since_{};
  std::optional<Time> next_heartbeat_;
  std::optional<ReclaimNotice> reclaim_;  // to be sent at the next Welcome
  std::map<CommunicatorId, CommunicatorCreated> communicators_;
  // The group communicators' identities before the last change of members, for events that were
  // on their way.
  std::map<CommunicatorId, CommunicatorId> renamed_;
  std::map<CommunicatorId, Position> positions_;
  std::vector<GenerationId> retiring_;  // as in the last Retire
  uint64_t dropped_ = 0;
};

}  // namespace rewire::elastic
