// The leader's state machine: from a request or a loss to a committed world (docs/protocol.md).
//
// Pure: no clock, no I/O, no threads. Thread-compatible: owned by one thread of
// reconfig/control/agent, or by the simulator. Every input carries the time and appends the
// required actions to `out`. The owner does the actions in that order and feeds the answers back,
// never from inside an input. Call OnTick at the latest at NextDeadline(). A time without input
// counts as a stall of the owner's process: the leader's deadlines get closer by one step of its
// clock at most.
//
//   Leader leader(options, record_from_the_store_or_an_empty_one);
//   leader.Start(now, &out);            // fences the previous leader: the first CompareAndSwap
//   leader.OnConnect(now, hello, &out); // a connection's first message; its Hello names the member
//   leader.OnMessage(now, member, message, &out);
//   leader.OnDisconnect(now, member, &out);   // the connection has ended: the member is dead
//
// A member has one connection. A second Hello of the same id and incarnation replaces the first
// connection: the owner closes the older connection without calling OnDisconnect for it. The owner
// itself refuses a Hello that has a connected member's id and another incarnation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/settings.h"
#include "reconfig/elastic/leader/leader_action.h"
#include "reconfig/elastic/leader/peers.h"
#include "reconfig/elastic/leader/positions.h"
#include "reconfig/elastic/leader/record_write.h"
#include "reconfig/elastic/leader/recovery.h"
#include "reconfig/elastic/leader/registry.h"
#include "reconfig/elastic/leader/request_queue.h"
#include "reconfig/elastic/protocol/planted_bug.h"

namespace rewire::elastic {

struct LeaderOptions {
  std::vector<MemberId> initial_members;  // in slot order; used when the record has no world yet
  uint32_t max_members = 1024;
  Key job_key;                   // random, per job; the other keys are derived from it
  Duration grace = seconds(10);  // after a restart: for the world's members to reconnect
  Duration join = seconds(120);  // for new processes to start, attach and make communicators
  Duration build = milliseconds(SettingDefaults::build_ms);  // from Prepare to the last Prepared
  // From Propose to the last Pledge.
  Duration decision = milliseconds(SettingDefaults::decision_ms);
  // From Decide to the first member at the boundary.
  Duration arm = milliseconds(SettingDefaults::arm_ms);
  // From then to the last Verified.
  Duration boundary = milliseconds(SettingDefaults::boundary_ms);
  Duration enter = seconds(60);  // from the commit to the last Entered, and to RETIRED
  Duration heartbeat = milliseconds(SettingDefaults::heartbeat_ms);  // of the members
  // A member silent for this long is lost.
  Duration silence = milliseconds(SettingDefaults::silence_ms);
  Duration store_retry = milliseconds(100);  // between two tries when the store gives errors
  uint32_t cut_margin = SettingDefaults::cut_margin;  // operations
  uint32_t max_rounds = 8;                     // refused proposals before the transition is aborted
  PlantedBug planted_bug = PlantedBug::kNone;  // tests only
};

struct MemberStatus {
  MemberId member = 0;
  std::optional<uint32_t> slot;  // none: joining, or left
  bool connected = false;
  bool cooperates = false;
  bool finished = false;
  Heartbeat counts;                // the latest heartbeat
  std::optional<Duration> silent;  // since the last message; nullopt: none since this leader began
};

struct Transition;  // transition.h: the current attempt

class Leader {
 public:
  Leader(LeaderOptions options, WorldRecord record);
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  using Out = std::vector<LeaderAction>;

  void Start(Time now, Out* out);
  void OnConnect(Time now, const Hello& hello, Out* out);
  void OnDisconnect(Time now, MemberId member, Out* out);
  // The process of a member ended with a status other than 0. The member counts as lost even after
  // Finished, because an error may have run its exit handlers. The member also counts as lost
  // without communicators, because the others may be creating one with that member. Before the
  // first world it ends the job, because that world needs every initial member.
  void OnFailedExit(Time now, MemberId member, const std::string& how, Out* out);
  // The process of a member ended with status 0 and has no connection. Before the first world this
  // ends the job as soon as a cooperating program waits for that world.
  void OnEndBeforeWorld(Time now, MemberId member, Out* out);
  // Ignores a Hello. Messages of a member that never said Hello are dropped and counted.
  void OnMessage(Time now, MemberId member, const Message& message, Out* out);
  // Returns the id of a valid request (then see StatusOf and the notes). An invalid request changes
  // nothing and returns an error that names the fault. Requests that arrive during a transition are
  // merged into the next one.
  absl::StatusOr<uint64_t> OnRequest(Time now, const ChangeRequest& request, Out* out);
  void OnStoreResult(Time now, const absl::StatusOr<StoreAnswer>& answer, Out* out);
  void OnSpawned(Time now, std::span<const MemberId> members, Out* out);
  void OnSpawnFailed(Time now, std::span<const MemberId> members, const std::string& reason,
                     Out* out);
  // The threads of a silent member have waited for a processor for `waited` since the last call.
  // That time does not count as silence.
  void OnStarved(Time now, MemberId member, Duration waited, Out* out);
  void OnTick(Time now, Out* out);
  // Returns the earliest time at which OnTick has something to do.
  [[nodiscard]] std::optional<Time> NextDeadline() const;

  // ---- status ---------------------------------------------------------------------------------
  [[nodiscard]] const WorldRecord& record() const { return record_; }
  [[nodiscard]] Phase phase() const;
  [[nodiscard]] bool steady() const;  // no transition and no request is active or waits
  [[nodiscard]] bool done() const { return done_; }  // every member has finished
  // Returns the first loss with its reason, until a new world has healed it; "": none.
  [[nodiscard]] std::string loss() const { return broken_ ? loss_ : ""; }
  [[nodiscard]] RequestStatus StatusOf(uint64_t request) const {
    return requests_.StatusOf(request);
  }
  [[nodiscard]] std::vector<MemberStatus> Members(Time now) const;
  // Returns connected members whose counted silence has lasted for a part of REWIRE_SILENCE_MS that
  // makes a check of their processes worth its cost.
  [[nodiscard]] std::vector<MemberId> Quiet() const { return peers_.Quiet(); }
  // Returns the communicators that have not passed a decided swap, by member.
  [[nodiscard]] std::vector<PendingCut> Pending() const { return positions_.Pending(); }
  [[nodiscard]] std::vector<PinnedCommunicator> Pinned() const { return registry_.Pinned(); }
  [[nodiscard]] uint64_t dropped_messages() const { return dropped_; }
  [[nodiscard]] uint64_t refused_rounds() const { return refused_rounds_; }
  // Returns how often a program's thread waited at a cut for the decision.
  [[nodiscard]] uint64_t host_waits() const { return host_waits_; }
  // Why the running transition waits in RESERVE; empty: it does not.
  [[nodiscard]] std::string waits() const;

 private:
  // leader.cc: time, messages of members, output.
  // Converts `now` to the leader's time, which stands still while the leader's process does.
  [[nodiscard]] Time Awake(Time now);
  struct Incoming;
  // A member has created or destroyed a communicator: the planned transition must include that.
  void OnCommunicators(Time now, MemberId member, const std::string& what, Out* out);
  void OnReclaimNotice(Time now, MemberId member, const ReclaimNotice& m, Out* out);
  [[nodiscard]] bool Current(Epoch epoch);  // false: not current, dropped and counted
  [[nodiscard]] std::vector<MemberId> WorldIds() const;
  [[nodiscard]] std::vector<MemberId> Alive() const;  // in the world, neither lost nor finished
  // Forgets a process that has left.
  void Forget(MemberId member);
  // Forgets the reports of a member that has left or will report again.
  void ForgetReports(MemberId member);
  void Enter(Time now, Phase phase, std::optional<Duration> within, Out* out);
  void Send(MemberId member, const Message& message, Out* out);
  void SendAll(const std::vector<MemberId>& members, const Message& message, Out* out);
  void Tell(Time now, NoteKind kind, const std::string& text, Out* out) const;

  // leader_connect.cc: connections.
  void Refuse(MemberId member, const std::string& reason, Out* out);
  void SendWelcome(Time now, MemberId member, Out* out);
  void WelcomeDue(Time now, Out* out);
  // Returns whether the member's reports describe the world before the stored world, because the
  // member has not yet learned of the change.
  [[nodiscard]] bool MissedCommit(const Peer& peer) const;
  void SettleReports();

  // leader_record.cc: the world record.
  void Write(Time now, const WorldRecord& record, Out* out);
  void TryReserve(Time now, Out* out);
  void Written(Time now, const WorldRecord& written, Out* out);
  void TryForm(Time now, Out* out);
  void TryEndRecovery(Time now, Out* out);

  // leader_request.cc: requests, and the start of transitions.
  [[nodiscard]] absl::Status CheckRequest(const ChangeRequest& request) const;
  // Does OnRequest with a `now` that Awake has returned.
  absl::StatusOr<uint64_t> Enqueue(Time now, const ChangeRequest& request, Out* out);
  void BeginNext(Time now, Out* out);
  void BeginPlanned(Time now, Out* out);
  void BeginLoss(Time now, Out* out);
  void Begin(Time now, std::unique_ptr<Transition> transition, Out* out);
  // Returns uncommitted requests with a deadline that members of the world have still to meet.
  [[nodiscard]] std::vector<uint64_t> DueDrains() const;
  // The deadline of a drain takes no member from a new world whose first copies are not complete.
  void PostponeDrains(Time now);
  void CheckDrains(Time now, Out* out);

  // leader_prepare.cc: from RESERVE to the last Prepared.
  void AfterReserve(Time now, Out* out);
  void TryPrepare(Time now, Out* out);
  [[nodiscard]] absl::Status ReadyToPrepare() const;
  void OnMinted(Time now, MemberId from, const Minted& m, Out* out);
  void TryBuild(Time now, Out* out);
  void OnPrepared(Time now, MemberId from, const Prepared& m, Out* out);
  void AfterPrepared(Time now, Out* out);

  // leader_commit.cc: the points at which members stop or switch, up to the compare-and-swap.
  void ProposeRound(Time now, Out* out);
  void OnPledge(Time now, MemberId from, const Pledge& m, Out* out);
  // Ends a round in which the cut of this communicator was refused; nullopt: all cuts were refused.
  void RefuseRound(Time now, const std::optional<CommunicatorId>& communicator,
                   const std::string& why, Out* out);
  void OnAtBoundary(Time now, MemberId from, const AtBoundary& m, Out* out);
  void TryRestore(Time now, Out* out);
  void OnVerified(Time now, MemberId from, const Verified& m, Out* out);
  void CommitNow(Time now, Out* out);
  void OnPhaseDeadline(Time now, Out* out);

  // leader_end.cc: the work after the commit, and aborts.
  void AfterCommit(Time now, Out* out);
  void OnEntered(Time now, MemberId from, const Entered& m, Out* out);
  void OnPosition(Time now, MemberId from, const Position& m, Out* out);
  // Tells the members to destroy the generations that no member uses any more.
  void RetireUnused(Out* out);
  // Returns those of `members` that have destroyed all earlier generations, or have finished.
  [[nodiscard]] std::set<MemberId> Retired(const std::vector<MemberId>& members) const;
  void TryRetire(Time now, Out* out);
  void TryEnd(Time now, Out* out);
  void EndTransition(Time now, Out* out);
  // Aborts a planned transition. again: its requests wait for the next transition (a few times);
  // otherwise the requests fail.
  void AbortPlanned(Time now, const std::string& reason, bool again, Out* out);
  // Restarts a loss transition, a few times; then the job stops.
  void RetryLoss(Time now, const std::string& reason, Out* out);
  // Starts PREPARE again, under a new epoch, with the same target.
  void Restart(Time now, const std::string& reason, Out* out);
  // Drops the transition. The caller informs its requests and the members of the world.
  void DropTransition(Time now, const std::string& reason, bool again, Out* out);
  void DismissJoiners(const std::string& reason, Out* out);

  // leader_loss.cc: members that are lost or leave.
  void Lose(Time now, const std::vector<MemberId>& members, const std::string& why, Out* out);
  void TellLost(Time now, Out* out);
  void Finish(Time now, MemberId member, Out* out);
  void LoseFinished(Time now, const std::vector<MemberId>& members, const std::string& why,
                    Out* out);
  // Loses members that have ended well for so long that others may wait for them in NCCL.
  void CheckEnds(Time now, Out* out);
  // Returns whether every living member of the world has a reclaim notice and no other will come.
  [[nodiscard]] bool NobodyStays() const;
  void StopJob(Time now, const std::string& reason, Out* out);
  // Returns whether the first world still needs the member.
  [[nodiscard]] bool IsForming(MemberId member) const;
  void StopForming(Time now, const std::vector<MemberId>& lost, const std::string& how, Out* out);
  void StopUnformable(Time now, Out* out);
  // Loses members whose processes may still run, and has them ended.
  void LoseAndEnd(Time now, const std::vector<MemberId>& members, const std::string& why, Out* out);
  void StopReclaimed(Time now, Out* out);
  void Heard(Time now, MemberId member);
  void CheckSilence(Time now, Out* out);

  const LeaderOptions options_;
  WorldRecord record_;
  RecordWrite write_;
  bool fenced_ = false;                 // the store has this leader's first write
  Phase idle_phase_ = Phase::kForming;  // the phase without a transition
  Recovery recovery_;
  Peers peers_;
  Registry registry_;
  Positions positions_;
  RequestQueue requests_;
  std::unique_ptr<Transition> transition_;
  uint64_t attempts_ = 0;
  std::optional<Duration> usual_;  // the usual duration of changes of members, for deadlines
  bool broken_ = false;            // generations are aborted: only a loss transition heals
  std::string loss_ = "members were lost before the leader restarted";  // with its reason
  std::vector<MemberId> never_come_;  // initial members that ended before they connected
  uint32_t loss_attempts_ = 0;        // attempts without success for the present loss
  bool done_ = false;
  uint64_t dropped_ = 0;
  uint64_t refused_rounds_ = 0;  // withdrawn proposals
  uint64_t host_waits_ = 0;
  RunningClock clock_;
  Duration told_stall_{};
  Time ticked_{};  // when silence and deadlines were last looked at
};

}  // namespace rewire::elastic
