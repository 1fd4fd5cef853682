// A member's state machine: what one training process does in a transition (docs/protocol.md).
//
// Pure: no clock, no I/O, no threads. Every input carries the time and appends what must be done to
// `out`; the owner (reconfig/participant, one thread; or the simulator) does it in that order and
// feeds the answers back, never from inside an input. Answers about an epoch that is not the one
// under way are dropped, so an owner may answer late. Call OnTick at the latest when NextDeadline()
// has come.
//
// Rules it keeps: a message of another epoch does nothing and is counted. A member never guesses:
// once it has sent Verified it goes on only when it knows whether the commit happened; it learns
// that from the leader, after reconnecting if need be. Before Verified it may give up by itself,
// because without its Verified nobody can commit. After a loss there is no old world to go back to:
// it waits or stops.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/running_clock.h"
#include "reconfig/transition/member_action.h"
#include "reconfig/transition/planted_bug.h"

namespace rewire {

struct MemberOptions {
  MemberId member = 0;
  uint64_t incarnation = 0;
  uint32_t pid = 0;
  bool cooperates = false;
  std::string data_address;
  Duration heartbeat = milliseconds(500);  // REWIRE_HEARTBEAT_MS
  // REWIRE_BOUNDARY_MS: standing at a planned boundary without having verified; then on in the old
  // world.
  Duration boundary = seconds(30);
  // Standing after Verified without knowing the decision, or joining without contact; then stop.
  Duration undecided = seconds(60);
  // Standing after a loss without a new world; then stop.
  Duration recover = seconds(120);
  PlantedBug planted_bug = PlantedBug::kNone;  // tests only
};

// What AtBoundary says of this member's state; see messages.h.
struct BoundaryInfo {
  uint64_t live_version = 0;
  bool live_whole = true;
  std::vector<uint64_t> own_snapshots;
  std::vector<uint64_t> buddy_snapshots;
  StateLayout layout;
};

// The transition a member takes part in. Part of Member.
struct MemberWork {
  Prepare prepare;
  Time build_by{};
  std::optional<Build> build;
  std::optional<uint64_t> plan_hash;
  bool built = false;
  bool prepared = false;
  std::vector<CommunicatorCounter> counters;
  std::optional<Propose> proposed;  // the round that was pledged or is being asked
  bool pledged = false;
  bool armed = false;
  bool entered = false;  // a swap's decision holds; the commit has still to be heard of
  std::optional<Restore> restore;
  bool described = false;  // the boundary's versions are those of now
  bool finishing = false;  // FinishStream or RestoreFrom was given
  bool reported = false;   // AtBoundary was sent
  bool verified = false;   // Verified{ok} was sent: from here on only the leader decides
  Time verified_at{};
  bool from_before = false;  // it was under way before the present connection
};

class Member {
 public:
  explicit Member(MemberOptions options) : options_(std::move(options)) {}

  using Out = std::vector<MemberAction>;

  // ---- the agent ------------------------------------------------------------------------------
  // A connection is there (the first, or again): says Hello and reports every communicator. The
  // owner keeps reconnecting until StopProcess or OnFinished.
  void OnConnected(Time now, Out* out);
  void OnDisconnected(Time now, Out* out);
  void OnMessage(Time now, const Message& message, Out* out);

  // ---- the program ----------------------------------------------------------------------------
  void OnCommunicatorCreated(Time now, const CommunicatorCreated& created, Out* out);
  void OnCommunicatorDestroyed(Time now, const CommunicatorId& communicator, Out* out);
  // The program's thread stands at an update boundary: at a pledged step, after AbortCurrent, as a
  // joiner in its first update, or because of DescribeBoundary. It stands until Resume (or Stop),
  // which comes at once where the reason has gone since it stopped.
  void OnBoundary(Time now, const BoundaryInfo& info, Out* out);
  void OnReclaim(Time now, Duration within, Out* out);  // SIGTERM
  void OnFinished(Time now, Out* out);                  // the program detached

  // ---- answers to actions ---------------------------------------------------------------------
  void OnMinted(Time now, Epoch epoch, const CommunicatorId& communicator,
                const absl::StatusOr<UniqueIdBytes>& id, Out* out);
  void OnPlanned(Time now, Epoch epoch, const absl::StatusOr<uint64_t>& plan_hash, Out* out);
  // counters: all communicators', and kUpdateBoundary with the updates begun.
  void OnBuilt(Time now, Epoch epoch, const absl::Status& status,
               std::vector<CommunicatorCounter> counters, Out* out);
  // refusal: empty when the pledge was given.
  void OnPledged(Time now, Epoch epoch, uint32_t round, const std::optional<CutRefusal>& refusal,
                 std::vector<CommunicatorCounter> counters, Out* out);
  void OnStreamed(Time now, Epoch epoch, const absl::Status& status, uint64_t bytes_in,
                  uint64_t bytes_out, Out* out);
  void OnEntered(Time now, Epoch epoch, uint64_t pause_ns, Out* out);
  // The generations of all communicators as they are now; what has changed is reported.
  void OnPositions(Time now, const std::vector<Position>& positions, Out* out);

  // counts: what the next heartbeat says.
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
  void OnWelcome(Time now, const Welcome& m, Out* out);
  void OnPrepare(Time now, const Prepare& m, Out* out);
  void OnPropose(const Propose& m, Out* out);
  void OnDecide(Time now, const Decide& m, Out* out);
  void OnRestore(const Restore& m, Out* out);
  void OnCommit(Time now, const Commit& m, Out* out);
  void OnAbort(Time now, const Abort& m, Out* out);
  void OnLost(Time now, const Lost& m, Out* out);

  void TakeCommitted(Time now, const WorldRecord& record, Out* out);
  void TryPrepared(Time now, Out* out);
  void TryBoundary(Time now, Out* out);
  // Whether there is a reason to stand still before update `version`.
  [[nodiscard]] bool StandsFor(uint64_t version) const;
  void GiveUp(Time now, Out* out);
  // The transition under way will not happen; the program goes on in the old world if it can.
  void Drop(const std::string& reason, Out* out);
  void Release(ResumeKind kind, Out* out);
  void Stop(const std::string& reason, Out* out);
  void Send(Message message, Out* out);
  [[nodiscard]] bool Current(Epoch epoch);
  [[nodiscard]] std::optional<Time> GiveUpAt() const;

  const MemberOptions options_;
  RunningClock clock_{seconds(2)};  // what the deadlines are judged by
  bool connected_ = false;
  bool welcomed_ = false;  // by the leader behind the present connection
  bool entered_world_ = false;
  bool joining_ = false;
  bool broken_ = false;  // told of a loss
  bool standing_ = false;
  bool finished_ = false;
  bool stopped_ = false;
  Key names_key_;
  WorldRecord record_;  // what this member believes is committed; epoch 0 before it is told
  Epoch entered_epoch_ = 0;
  Entered entered_;    // as it was reported, for a report after reconnecting
  Epoch highest_ = 0;  // of any transition it was asked to prepare
  std::optional<MemberWork> work_;
  BoundaryInfo boundary_;
  Time standing_since_{};
  Time disconnected_since_{};
  Time broken_since_{};
  std::optional<Time> next_heartbeat_;
  std::optional<ReclaimNotice> reclaim_;  // to be sent at the next Welcome
  std::map<CommunicatorId, CommunicatorCreated> communicators_;
  std::map<CommunicatorId, Position> positions_;
  std::vector<GenerationId> retiring_;  // as the last Retire said
  uint64_t dropped_ = 0;
};

}  // namespace rewire
