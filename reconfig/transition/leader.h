// The leader's state machine: from a request or a loss to a committed world (docs/protocol.md).
//
// Pure: no clock, no I/O, no threads. Every input carries the time and appends what must be done to
// `out`; the owner (reconfig/agent, one thread; or the simulator) does it in that order and feeds
// the answers back, never from inside an input. Call OnTick at the latest when NextDeadline() has
// come. A time for which the owner gave no input is a stall of its process: no deadline of the
// leader comes nearer in it.
//
//   Leader leader(options, record_from_the_store_or_an_empty_one);
//   leader.Start(now, &out);            // fences the leader before it: the first CompareAndSwap
//   leader.OnConnect(now, hello, &out); // a connection's first message; its Hello names the member
//   leader.OnMessage(now, member, message, &out);
//   leader.OnDisconnect(now, member, &out);   // the connection has ended: the member is dead
//
// A member has one connection. A second Hello of the same id and incarnation replaces the first
// connection: the owner closes the older one without calling OnDisconnect for it. A Hello of a
// connected member's id with another incarnation never comes here: the owner refuses it by itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/running_clock.h"
#include "reconfig/transition/leader_action.h"
#include "reconfig/transition/planted_bug.h"
#include "reconfig/transition/positions.h"
#include "reconfig/transition/registry.h"
#include "reconfig/transition/request.h"

namespace rewire {

struct LeaderOptions {
  std::vector<MemberId> initial_members;  // in slot order; used when the record has no world yet
  uint32_t max_members = 1024;
  Key job_key;                     // random, of this job; the other keys are derived from it
  Duration grace = seconds(10);    // after a restart: for the world's members to reconnect
  Duration join = seconds(120);    // for new processes to start, attach and make communicators
  Duration build = seconds(60);    // REWIRE_BUILD_MS: from Prepare to the last Prepared
  Duration decision = seconds(2);  // REWIRE_DECISION_MS: from Propose to the last Pledge
  Duration arm = seconds(120);     // REWIRE_ARM_MS: from Decide to the first member at the boundary
  Duration boundary = seconds(30);           // REWIRE_BOUNDARY_MS: from then to the last Verified
  Duration enter = seconds(60);              // from the commit to the last Entered, and to RETIRED
  Duration heartbeat = milliseconds(500);    // REWIRE_HEARTBEAT_MS, of the members
  Duration silence = seconds(3);             // REWIRE_SILENCE_MS: no message for so long means lost
  Duration store_retry = milliseconds(100);  // between two tries when the store gives errors
  uint32_t cut_margin = 16;                  // REWIRE_CUT_MARGIN, operations
  uint32_t max_rounds = 8;                   // refused proposals before the transition is aborted
  PlantedBug planted_bug = PlantedBug::kNone;  // tests only
};

// The store's answer to a CompareAndSwap: whether it was written, and the record that now stands.
struct StoreAnswer {
  bool swapped = false;
  WorldRecord current;
};

enum class RequestState : uint8_t { kUnknown, kWaiting, kRunning, kDone, kFailed };
struct RequestStatus {
  RequestState state = RequestState::kUnknown;
  std::string text;  // why it failed or what it waits for
};

struct MemberStatus {
  MemberId member = 0;
  std::optional<uint32_t> slot;  // none: joining, or left
  bool connected = false;
  bool cooperates = false;
  bool finished = false;
  Heartbeat counts;  // the latest
  Duration silent{};
};

struct Transition;  // transition.h: the attempt under way

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
  // The process of a member ended with another status than 0. The member counts as lost although it
  // had said Finished, because an error ran its exit handlers, or although it had no communicators,
  // because the others may be creating one with it.
  void OnFailedExit(Time now, MemberId member, const std::string& how, Out* out);
  // A Hello is ignored here. Messages of a member that never said Hello are dropped and counted.
  void OnMessage(Time now, MemberId member, const Message& message, Out* out);
  // Valid: an id (then see StatusOf and the notes). Else at once an error that names what is wrong;
  // nothing has happened. Requests that arrive during a transition are merged into the next one.
  absl::StatusOr<uint64_t> OnRequest(Time now, const ChangeRequest& request, Out* out);
  void OnStoreResult(Time now, const absl::StatusOr<StoreAnswer>& answer, Out* out);
  void OnSpawned(Time now, std::span<const MemberId> members, Out* out);
  void OnSpawnFailed(Time now, std::span<const MemberId> members, const std::string& reason,
                     Out* out);
  // The threads of a silent member have waited for a processor for `waited` since the last call.
  // The time does not count as silence.
  void OnStarved(Time now, MemberId member, Duration waited, Out* out);
  void OnTick(Time now, Out* out);
  // The earliest time at which OnTick has something to do.
  [[nodiscard]] std::optional<Time> NextDeadline() const;

  // ---- status ---------------------------------------------------------------------------------
  [[nodiscard]] const WorldRecord& record() const { return record_; }
  [[nodiscard]] Phase phase() const;
  [[nodiscard]] bool steady() const;                 // nothing under way, nothing waits
  [[nodiscard]] bool done() const { return done_; }  // every member has finished
  [[nodiscard]] RequestStatus StatusOf(uint64_t request) const;
  [[nodiscard]] std::vector<MemberStatus> Members(Time now) const;
  // Connected members whose silence, as it is counted, has lasted for a part of REWIRE_SILENCE_MS
  // that makes a look at their processes worth its cost.
  [[nodiscard]] std::vector<MemberId> Quiet() const;
  // Communicators that have not passed a decided swap, by member.
  [[nodiscard]] std::vector<PendingCut> Pending() const { return positions_.Pending(); }
  [[nodiscard]] uint64_t dropped_messages() const { return dropped_; }
  [[nodiscard]] uint64_t refused_rounds() const { return refused_rounds_; }
  // Times a program's thread waited at a cut for the decision.
  [[nodiscard]] uint64_t host_waits() const { return host_waits_; }

 private:
  struct Peer {
    uint64_t incarnation = 0;
    std::string data_address;
    bool connected = false;
    bool cooperates = false;
    bool finished = false;
    bool lost = false;       // permanent: a new Hello is refused
    bool reclaimed = false;  // it has a reclaim notice
    bool welcome_due = false;
    bool visitor = false;   // not known to be in any world: is told of the record, and sent away
    bool broken = false;    // says that its generations are aborted, as of hello_epoch
    Epoch hello_epoch = 0;  // that it was in when it connected
    uint32_t positions_due = 0;  // reports that its Hello announced and that have not come yet
    Heartbeat counts;
    Time heard{};
    Duration heard_at{};  // what speaking_ was then, and later by the time that it was starved
    bool told_starved = false;
  };
  struct Request {
    ChangeRequest change;
    std::optional<Time> gone_by;  // a drain's deadline, until it has come
    uint32_t world_size = 0;      // when it arrived
    uint32_t attempts = 0;
    RequestStatus status;
  };

  // leader.cc: connections.
  void Refuse(MemberId member, const std::string& reason, Out* out);
  void Greet(Time now, MemberId member, Out* out);
  void WelcomeDue(Time now, Out* out);
  // Its reports are of the world before the stored one, whose change it has still to learn of.
  [[nodiscard]] bool Behind(const Peer& peer) const;
  void SettleReports();
  void TryForm(Time now, Out* out);
  void TryEndRecovery(Time now, Out* out);

  // leader_loss.cc: members that go.
  void Lose(Time now, const std::vector<MemberId>& members, const std::string& why, Out* out);
  void TellLost(Time now, Out* out);
  void Finish(Time now, MemberId member, Out* out);
  // Every living member of the world has a reclaim notice, and no other is about to come.
  [[nodiscard]] bool NobodyStays() const;
  void StopJob(Time now, const std::string& reason, Out* out);
  void StopReclaimed(Time now, Out* out);
  void CheckSilence(Time now, Out* out);
  // The time that passes for the leader: it stands still while its process does.
  [[nodiscard]] Time Awake(Time now);
  void CountSpeech(Time now);
  [[nodiscard]] Duration Vouches() const;
  void Heard(Time now, MemberId member);
  [[nodiscard]] bool AllSilent(Time now) const;
  // The request's members that are alive and still in the world.
  [[nodiscard]] std::vector<MemberId> NotGone(const Request& request) const;
  // Uncommitted requests with a deadline, which members of the world have still to meet.
  [[nodiscard]] std::vector<uint64_t> DueDrains() const;
  void CheckDrains(Time now, Out* out);
  [[nodiscard]] bool Cooperating() const;
  [[nodiscard]] std::vector<MemberId> WorldIds() const;
  [[nodiscard]] std::vector<MemberId> Alive() const;  // of the world, neither lost nor finished
  [[nodiscard]] bool ToldOf(MemberId member) const;   // connected and welcomed

  // leader_store.cc: the world record.
  void Write(Time now, const WorldRecord& record, Out* out);
  void TryReserve(Time now, Out* out);
  void Written(Time now, const WorldRecord& written, Out* out);

  // leader_request.cc: the queue, and what begins.
  [[nodiscard]] absl::Status CheckRequest(const ChangeRequest& request) const;
  // OnRequest with a `now` that Awake has given.
  absl::StatusOr<uint64_t> Enqueue(Time now, const ChangeRequest& request, Out* out);
  void BeginNext(Time now, Out* out);
  void BeginPlanned(Time now, Out* out);
  void BeginLoss(Time now, Out* out);
  void Begin(Time now, std::unique_ptr<Transition> transition, Out* out);
  void Resolve(const std::vector<uint64_t>& ids, RequestState state, const std::string& text);

  // leader_phases.cc: from PREPARE to the compare-and-swap.
  void AfterReserve(Time now, Out* out);
  void TryPrepare(Time now, Out* out);
  [[nodiscard]] absl::Status ReadyToPrepare() const;
  void OnMinted(Time now, const Minted& m, Out* out);
  void TryBuild(Time now, Out* out);
  void OnPrepared(Time now, MemberId from, const Prepared& m, Out* out);
  void AfterPrepared(Time now, Out* out);
  void OnAtBoundary(Time now, MemberId from, const AtBoundary& m, Out* out);
  void TryRestore(Time now, Out* out);
  void OnVerified(Time now, MemberId from, const Verified& m, Out* out);
  void CommitNow(Time now, Out* out);
  void OnPhaseDeadline(Time now, Out* out);

  // leader_cuts.cc: where all members stop or switch, and their pledges.
  void Count(Time now, const std::vector<CommunicatorCounter>& counters);
  void ProposeRound(Time now, Out* out);
  [[nodiscard]] Cut ChooseCut(const CommunicatorId& communicator) const;
  [[nodiscard]] Cut ChooseStep();
  void OnPledge(Time now, MemberId from, const Pledge& m, Out* out);
  // The cut of this communicator was refused; none: all cuts were.
  void RefuseRound(Time now, const std::optional<CommunicatorId>& communicator,
                   const std::string& why, Out* out);

  // leader_end.cc: what follows the commit, and aborts.
  void AfterCommit(Time now, Out* out);
  void OnEntered(Time now, MemberId from, const Entered& m, Out* out);
  void OnPosition(Time now, MemberId from, const Position& m, Out* out);
  // Tells the members to destroy what none of them uses any more.
  void RetireUnused(Out* out);
  // Those of `members` that have destroyed what was in use before the transition, or have finished.
  [[nodiscard]] std::set<MemberId> Retired(const std::vector<MemberId>& members) const;
  void TryRetire(Time now, Out* out);
  void TryEnd(Time now, Out* out);
  void EndTransition(Time now, Out* out);
  // Of a planned transition. again: its requests wait for the next one (a few times), else they
  // fail.
  void AbortPlanned(Time now, const std::string& reason, bool again, Out* out);
  // Of a loss: it begins again, a few times; then the job stops.
  void RetryLoss(Time now, const std::string& reason, Out* out);
  // PREPARE again, under a new epoch, with the same target.
  void Restart(Time now, const std::string& reason, Out* out);
  // Neither its requests nor the members of the world are told: the caller does.
  void DropTransition(Time now, const std::string& reason, bool again, Out* out);
  void DismissJoiners(const std::string& reason, Out* out);
  // What it reported is void: it has left, or reports anew.
  void ForgetReports(MemberId member);

  void Enter(Time now, Phase phase, std::optional<Duration> within, Out* out);
  void Send(MemberId member, const Message& message, Out* out);
  void SendAll(const std::vector<MemberId>& members, const Message& message, Out* out);
  void Tell(Time now, NoteKind kind, const std::string& text, Out* out) const;
  [[nodiscard]] bool Current(Epoch epoch);  // of the transition under way; else dropped and counted

  const LeaderOptions options_;
  WorldRecord record_;
  Phase idle_phase_ = Phase::kForming;  // when no transition is under way
  std::optional<Time> recover_by_;
  uint32_t recover_turns_ = 0;  // grace times for which no member has come back
  bool recover_first_ = false;  // one has come back
  bool fenced_ = false;         // the store has this leader's first write
  std::map<MemberId, Peer> peers_;
  Registry registry_;
  Positions positions_;
  std::vector<uint64_t> queue_;  // requests that wait
  std::map<uint64_t, Request> requests_;
  uint64_t next_request_ = 1;
  uint64_t attempts_ = 0;
  std::unique_ptr<Transition> transition_;
  // The store: one swap outstanding, or waiting to be tried again.
  std::optional<WorldRecord> writing_;
  std::optional<Time> write_again_;
  std::set<MemberId> lost_;     // of the stored world: the next transition is a loss
  bool broken_ = false;         // generations are aborted: only a loss transition heals
  uint32_t loss_attempts_ = 0;  // without success, of the present loss
  bool done_ = false;
  uint64_t dropped_ = 0;
  uint64_t refused_rounds_ = 0;  // proposals that were taken back
  uint64_t host_waits_ = 0;
  Time write_began_{};
  Duration store_took_{};          // for the last compare-and-swap
  std::optional<Duration> usual_;  // how long planned transitions took, for deadlines
  RunningClock clock_;
  Duration told_stall_{};
  // Silence is measured against the other members: `speaking_` is the time in which some member of
  // the world spoke, counted up to counted_. It stands still while nobody speaks.
  Duration speaking_{};
  Time counted_{};
  Time spoke_{};   // when a member of the world was last heard
  Time ticked_{};  // when silence and deadlines were last looked at
  bool told_silence_ = false;
};

}  // namespace rewire
