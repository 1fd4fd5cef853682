// The leader's clock, the messages of its members, and its status; see leader.h. Owned by the
// leader's thread.
#include "reconfig/elastic/leader/leader.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/counters.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {

Leader::Leader(LeaderOptions options, WorldRecord record)
    : options_(std::move(options)),
      record_(std::move(record)),
      write_(options_.store_retry),
      recovery_(options_.grace, options_.silence),
      peers_(options_.heartbeat, options_.silence),
      clock_(options_.planted_bug == PlantedBug::kStallCounts ? Duration::max() / 4
                                                              : options_.silence / 4) {}
Leader::~Leader() = default;

Phase Leader::phase() const { return transition_ ? transition_->phase : idle_phase_; }

bool Leader::steady() const {
  return phase() == Phase::kSteady && requests_.empty() && peers_.lost().empty() &&
         write_.record() == nullptr;
}

void Leader::Start(Time now, Out* out) {
  now = Awake(now);
  peers_.Start(now);
  ticked_ = now;
  if (record_.world.epoch > 0) {
    idle_phase_ = Phase::kRecovering;
    recovery_.Begin(now);
  }
  if (options_.planted_bug == PlantedBug::kDoubleCommit) {
    fenced_ = true;
    return;
  }
  Write(now, record_, out);
}

std::vector<MemberId> Leader::WorldIds() const {
  std::vector<MemberId> ids;
  for (const WorldMember& m : record_.world.members) ids.push_back(m.member);
  return ids;
}

std::vector<MemberId> Leader::Alive() const { return peers_.Alive(WorldIds()); }

void Leader::Forget(MemberId member) {
  ForgetReports(member);
  peers_.Forget(member);
}

void Leader::ForgetReports(MemberId member) {
  registry_.Forget(member);
  positions_.Forget(member);
}

// ---- messages of members ------------------------------------------------------------------------

// One overload for each message, so that a message without one does not compile.
struct Leader::Incoming {
  void operator()(const Heartbeat& m) const {
    Heartbeat& counts = peer.counts;
    const uint64_t furthest = std::max(counts.updates, m.updates);
    counts = m;
    // Another build's member, or a hostile one, may send more rows than the agent knows.
    counts.counters.resize(std::min(counts.counters.size(), CounterTable().size()));
    counts.updates = furthest;
  }
  void operator()(const CommunicatorCreated& m) const {
    const bool fewer = leader.registry_.Created(now, member, m);
    if (leader.MissedCommit(peer)) leader.registry_.Settle(member, leader.WorldIds());
    const char* what = fewer ? "destroyed a rank of" : "created";
    leader.OnCommunicators(now, member, absl::StrCat(what, " communicator ", Name(m)), out);
  }
  void operator()(const CommunicatorPinned& m) const {
    if (!leader.registry_.Pin(now, member, m)) return;
    const char* what = m.reason.empty() ? "released" : "pinned";
    leader.OnCommunicators(now, member, absl::StrCat(what, " communicator ", Name(m)), out);
  }
  void operator()(const CommunicatorDestroyed& m) const {
    leader.registry_.Destroyed(member, m.communicator);
    leader.OnCommunicators(now, member, absl::StrCat("destroyed communicator ", Name(m)), out);
  }
  void operator()(const Minted& m) const {
    if (leader.Current(m.epoch)) leader.OnMinted(now, member, m, out);
  }
  void operator()(const Prepared& m) const {
    if (leader.Current(m.epoch)) leader.OnPrepared(now, member, m, out);
  }
  void operator()(const Pledge& m) const {
    if (leader.Current(m.epoch)) leader.OnPledge(now, member, m, out);
  }
  void operator()(const AtBoundary& m) const {
    if (leader.Current(m.epoch)) leader.OnAtBoundary(now, member, m, out);
  }
  void operator()(const Verified& m) const {
    if (leader.Current(m.epoch)) leader.OnVerified(now, member, m, out);
  }
  void operator()(const Entered& m) const {
    peer.hello_epoch = std::max(peer.hello_epoch, m.epoch);
    if (leader.Current(m.epoch)) leader.OnEntered(now, member, m, out);
  }
  void operator()(const Position& m) const { leader.OnPosition(now, member, m, out); }
  void operator()(const ReclaimNotice& m) const { leader.OnReclaimNotice(now, member, m, out); }
  void operator()(const Finished&) const { leader.Finish(now, member, out); }
  void operator()(const Hello&) const {}    // OnConnect has it
  void operator()(const Witness&) const {}  // for the agent
  template <OfTheLeader M>
  void operator()(const M&) const {
    ++leader.dropped_;
  }

  template <typename M>
  static std::string Name(const M& m) {
    return ShortName(m.communicator);
  }

  Leader& leader;
  Peer& peer;
  const Time now;
  const MemberId member;
  Out* const out;
};

void Leader::OnMessage(Time now, MemberId member, const Message& message, Out* out) {
  now = Awake(now);
  Peer* const peer = peers_.Find(member);
  if (peer == nullptr || !peer->connected) {
    ++dropped_;
    return;
  }
  Heard(now, member);
  // A job that has ended still shows its members' counts.
  if (idle_phase_ == Phase::kStopped && !std::holds_alternative<Heartbeat>(message)) return;
  std::visit(Incoming{*this, *peer, now, member, out}, message);
}

void Leader::OnCommunicators(Time now, MemberId member, const std::string& what, Out* out) {
  if (!transition_ || !transition_->BeforeCommit()) return;
  if (transition_->phase == Phase::kReserve) return TryPrepare(now, out);
  Restart(now, absl::StrCat("member ", member, " ", what), out);
}

void Leader::OnReclaimNotice(Time now, MemberId member, const ReclaimNotice& m, Out* out) {
  peers_.Know(member).reclaimed = true;
  if (NobodyStays()) return StopReclaimed(now, out);
  const ChangeRequest drain{
      RequestKind::kDrain, 0, {member}, milliseconds(m.within_ms), "reclaim notice"};
  const absl::StatusOr<uint64_t> id = Enqueue(now, drain, out);
  if (id.ok()) return;
  Tell(now, NoteKind::kWarning,
       absl::StrCat("the reclaim notice of member ", member,
                    " was refused: ", std::string(id.status().message())),
       out);
}

bool Leader::Current(Epoch epoch) {
  if (transition_ &&
      (epoch == transition_->epoch || options_.planted_bug == PlantedBug::kStaleEpochAccepted)) {
    return true;
  }
  ++dropped_;
  return false;
}

// ---- time ---------------------------------------------------------------------------------------

Time Leader::Awake(Time now) {
  const Duration stalled = clock_.stalled();
  const Time awake = clock_.Read(now);
  // The clock counts one step of each stall. Silence counts none: no member is heard.
  if (clock_.stalled() > stalled) peers_.Skip(awake);
  return awake;
}

void Leader::OnTick(Time now, Out* out) {
  now = Awake(now);
  ticked_ = now;
  if (idle_phase_ == Phase::kStopped) return;
  if (clock_.stalled() - told_stall_ > options_.silence) {
    Tell(now, NoteKind::kWarning,
         absl::StrCat(
             "the agent did not run for ",
             std::chrono::duration_cast<milliseconds>(clock_.stalled() - told_stall_).count(),
             " ms: this time counts for no deadline"),
         out);
    told_stall_ = clock_.stalled();
  }
  write_.RetryIfDue(now, out);
  CheckSilence(now, out);
  CheckEnds(now, out);
  CheckDrains(now, out);
  TryEndRecovery(now, out);
  if (transition_ && transition_->not_before && now >= *transition_->not_before) {
    TryPrepare(now, out);
  }
  if (transition_ && transition_->deadline && now >= *transition_->deadline) {
    OnPhaseDeadline(now, out);
  }
}

std::optional<Time> Leader::NextDeadline() const {
  if (idle_phase_ == Phase::kStopped) return std::nullopt;
  std::optional<Time> next;
  const auto at = [&](Time t) { next = next ? std::min(*next, t) : t; };
  if (write_.retry_at()) at(*write_.retry_at());
  if (recovery_.deadline()) at(*recovery_.deadline());
  if (transition_ && transition_->deadline) at(*transition_->deadline);
  if (transition_ && transition_->not_before) at(*transition_->not_before);
  for (const uint64_t id : DueDrains()) at(requests_.gone_by(id));
  if (const std::optional<Time> due = peers_.NextDue()) at(*due);
  // Messages also read the clock. A tick at a fixed time after the last reading would never come
  // while members speak often. Also while nothing else is due: a gap counts as a stall.
  at(ticked_ + clock_.step() / 2);
  return clock_.OwnersTime(*next);
}

// ---- output -------------------------------------------------------------------------------------

void Leader::Send(MemberId member, const Message& message, Out* out) {
  if (peers_.Told(member)) out->push_back(SendTo{member, message});
}

void Leader::SendAll(const std::vector<MemberId>& members, const Message& message, Out* out) {
  for (MemberId m : members) Send(m, message, out);
}

void Leader::Tell(Time now, NoteKind kind, const std::string& text, Out* out) const {
  Note note;
  note.kind = kind;
  note.text = text;
  note.phase = phase();
  note.epoch = record_.world.epoch;
  if (transition_) {
    note.transition = transition_->attempt;
    note.epoch = transition_->epoch;
    note.transition_kind = transition_->kind;
    note.requests = transition_->requests;
    note.elapsed = now - transition_->began;
  }
  out->push_back(std::move(note));
}

void Leader::Enter(Time now, Phase phase, std::optional<Duration> within, Out* out) {
  Note note;
  note.transition = transition_->attempt;
  note.epoch = transition_->epoch;
  note.transition_kind = transition_->kind;
  note.requests = transition_->requests;
  note.phase = phase;
  note.text = absl::StrCat(std::string(PhaseName(transition_->phase)), " -> ",
                           std::string(PhaseName(phase)));
  note.elapsed = now - transition_->began;
  note.phase_time = now - transition_->phase_began;
  transition_->phase = phase;
  transition_->phase_began = now;
  transition_->deadline = within ? std::optional<Time>(now + *within) : std::nullopt;
  if (note.phase_time > Duration{} || phase != Phase::kReserve) out->push_back(std::move(note));
}

std::vector<MemberStatus> Leader::Members(Time now) const {
  now = clock_.At(now);
  std::vector<MemberStatus> all;
  for (const auto& [id, peer] : peers_.all()) {
    all.push_back({id, record_.world.SlotOf(id), peer.connected, peer.cooperates, peer.finished,
                   peer.counts, peers_.SilentFor(now, id)});
  }
  return all;
}

}  // namespace rewire::elastic
