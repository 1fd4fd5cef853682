// The leader's connections and clock; see leader.h. Owned by the leader's thread.
#include "reconfig/elastic/leader/leader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {
namespace {

// The number of grace times that a new leader waits for the first member of a world.
constexpr uint32_t kRecoverTurns = 12;

}  // namespace

Leader::Leader(LeaderOptions options, WorldRecord record)
    : options_(std::move(options)),
      record_(std::move(record)),
      clock_(options_.planted_bug == PlantedBug::kStallCounts ? Duration::max() / 4
                                                              : options_.silence / 4),
      silence_(options_.heartbeat, options_.silence) {}
Leader::~Leader() = default;

Phase Leader::phase() const { return transition_ ? transition_->phase : idle_phase_; }

bool Leader::steady() const {
  return phase() == Phase::kSteady && queue_.empty() && lost_.empty() && !writing_;
}

void Leader::Start(Time now, Out* out) {
  now = Awake(now);
  silence_.Start(now);
  ticked_ = now;
  if (record_.world.epoch > 0) {
    idle_phase_ = Phase::kRecovering;
    recover_by_ = now + options_.grace;
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

std::vector<MemberId> Leader::Alive() const {
  std::vector<MemberId> ids = WorldIds();
  std::erase_if(ids, [&](MemberId m) {
    const auto peer = peers_.find(m);
    return lost_.contains(m) || peer == peers_.end() || peer->second.lost || peer->second.finished;
  });
  return ids;
}

bool Leader::Cooperating() const {
  const std::vector<MemberId> ids = WorldIds();
  return std::all_of(ids.begin(), ids.end(), [&](MemberId m) {
    const auto peer = peers_.find(m);
    return peer == peers_.end() || peer->second.lost || peer->second.cooperates;
  });
}

bool Leader::ToldOf(MemberId member) const {
  const auto peer = peers_.find(member);
  return peer != peers_.end() && peer->second.connected && !peer->second.welcome_due;
}

// ---- connections --------------------------------------------------------------------------------

void Leader::Refuse(MemberId member, const std::string& reason, Out* out) {
  out->push_back(SendTo{member, Refused{reason}});
  out->push_back(Kick{member});
}

void Leader::OnConnect(Time now, const Hello& hello, Out* out) {
  now = Awake(now);
  const MemberId id = hello.member;
  if (idle_phase_ == Phase::kStopped) return Refuse(id, "the job has ended", out);
  const auto known = peers_.find(id);
  if (known != peers_.end() && known->second.lost) {
    return Refuse(id, absl::StrCat("member ", id, " counts as lost: it was silent or disconnected"),
                  out);
  }
  const bool joiner = transition_ && transition_->IsJoiner(id);
  bool visitor = false;
  const std::optional<uint32_t> slot = record_.world.SlotOf(id);
  if (record_.world.epoch == 0) {
    const auto& initial = options_.initial_members;
    if (std::find(initial.begin(), initial.end(), id) == initial.end()) {
      return Refuse(id, absl::StrCat("member ", id, " is not one of this job's"), out);
    }
  } else if (slot) {
    if (record_.world.members[*slot].incarnation != hello.incarnation) {
      std::string why = absl::StrCat("member ", id, " is in the world as another process");
      if (idle_phase_ == Phase::kRecovering) {
        absl::StrAppend(&why,
                        ": the store is of a job that has ended or still runs (a new job needs a "
                        "new file for --store, or this one removed after the old job's end)");
      }
      return Refuse(id, why, out);
    }
  } else if (!joiner) {
    // The member left, or was to join. Greet tells the member the outcome by the record.
    visitor = true;
  }
  const bool again = known != peers_.end() && known->second.connected;
  if (again && joiner && known->second.incarnation != hello.incarnation) {
    return Refuse(id, absl::StrCat("member ", id, " is connected as another process"), out);
  }
  Peer& peer = peers_[id];
  peer.incarnation = hello.incarnation;
  peer.data_address = hello.data_address;
  peer.cooperates = hello.cooperates;
  peer.connected = true;
  peer.welcome_due = true;
  peer.visitor = visitor;
  Heard(now, id);
  ForgetReports(id);  // the member reports everything again
  peer.positions_due = hello.positions;
  positions_.Begun(hello.retiring);
  peer.broken = hello.broken;
  peer.hello_epoch = hello.epoch;
  Tell(now, NoteKind::kMember, absl::StrCat("member ", id, again ? " reconnected" : " connected"),
       out);
  if (again && transition_ && transition_->BeforeCommit() && transition_->phase > Phase::kReserve) {
    // Messages in progress on the old connection are lost, so all members prepare again.
    Restart(now, absl::StrCat("member ", id, " reconnected"), out);
  }
  WelcomeDue(now, out);
  TryForm(now, out);
  TryEndRecovery(now, out);
}

// Sends the due Welcomes as soon as this leader knows the committed world.
void Leader::WelcomeDue(Time now, Out* out) {
  if (!fenced_ || record_.world.epoch == 0 || phase() == Phase::kCommitting) return;
  std::vector<MemberId> due;
  for (const auto& [id, peer] : peers_) {
    if (peer.connected && peer.welcome_due) due.push_back(id);
  }
  for (MemberId id : due) Greet(now, id, out);
  RetireUnused(out);
  if (transition_ && transition_->phase == Phase::kReserve) TryPrepare(now, out);
}

bool Leader::Behind(const Peer& peer) const {
  return peer.hello_epoch != 0 && peer.hello_epoch < record_.world.epoch && record_.cuts.empty();
}

void Leader::SettleReports() {
  for (const auto& [id, peer] : peers_) {
    if (peer.connected && Behind(peer) && record_.world.SlotOf(id))
      registry_.Settle(id, WorldIds());
  }
}

void Leader::Greet(Time now, MemberId member, Out* out) {
  Peer& peer = peers_[member];
  peer.welcome_due = false;
  if (peer.visitor) {
    const std::optional<uint32_t> slot = record_.world.SlotOf(member);
    peer.visitor = !slot || record_.world.members[*slot].incarnation != peer.incarnation;
  }
  if (peer.visitor) {
    if (member >= record_.next_member) {
      Refuse(member, absl::StrCat("member ", member, " is not one of this job's"), out);
    } else {
      Send(member, Welcome{record_.world, false, NamesKey(options_.job_key)}, out);
      Send(member, Commit{record_}, out);
      out->push_back(Kick{member});
    }
    ForgetReports(member);
    silence_.Forget(member);
    peers_.erase(member);
    return;
  }
  if (transition_ && transition_->IsJoiner(member) && transition_->BeforeCommit()) {
    World target;
    target.epoch = transition_->epoch;
    for (MemberId m : transition_->target) {
      const auto slot = record_.world.SlotOf(m);
      target.members.push_back(slot ? record_.world.members[*slot] : WorldMember{m, 0, ""});
    }
    Welcome welcome{target, true, NamesKey(options_.job_key)};
    for (const WorldMember& m : record_.world.members) {
      if (!target.SlotOf(m.member)) welcome.leaving.push_back(m);
    }
    Send(member, welcome, out);
    return;
  }
  Send(member, Welcome{record_.world, false, NamesKey(options_.job_key)}, out);
  Send(member, Commit{record_}, out);
  if (broken_ && idle_phase_ == Phase::kSteady) {
    Send(member, Lost{record_.world.epoch, {lost_.begin(), lost_.end()}}, out);
  }
  Tell(now, NoteKind::kMember,
       absl::StrCat("member ", member, " was informed of epoch ", record_.world.epoch), out);
}

void Leader::TryForm(Time now, Out* out) {
  if (record_.world.epoch != 0 || !fenced_ || writing_ || idle_phase_ != Phase::kForming) return;
  WorldRecord record = record_;
  for (MemberId id : options_.initial_members) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end() || !peer->second.connected) return;
    record.world.members.push_back({id, peer->second.incarnation, peer->second.data_address});
    record.next_member = std::max(record.next_member, id + 1);
  }
  if (record.world.members.empty()) return;
  record.world.epoch = record.reserved_epoch + 1;
  record.reserved_epoch = record.world.epoch;
  record.secret = EpochKey(options_.job_key, record.world.epoch);
  Write(now, record, out);
}

void Leader::TryEndRecovery(Time now, Out* out) {
  if (idle_phase_ != Phase::kRecovering || !fenced_) return;
  std::vector<MemberId> missing;
  for (MemberId id : WorldIds()) {
    const auto peer = peers_.find(id);
    if (lost_.contains(id)) continue;
    if (peer == peers_.end() || !(peer->second.connected || peer->second.finished)) {
      missing.push_back(id);
    }
  }
  if (!missing.empty() && missing.size() + 1 == record_.world.members.size() && !recover_first_) {
    // The first member is back: the others have the grace time from now on.
    recover_first_ = true;
    recover_by_ = now + options_.grace;
  }
  if (!missing.empty() && now < *recover_by_) return;
  const bool nobody = missing.size() == record_.world.members.size();
  if (!missing.empty() && nobody && ++recover_turns_ < kRecoverTurns) {
    recover_by_ = now + options_.grace;  // the host has stalled, or all are dead
    return;
  }
  if (!missing.empty() && !nobody && silence_.OfAll(now)) {
    recover_by_ = now + options_.silence;  // a stalled host costs no member and no job
    return;
  }
  recover_by_.reset();
  idle_phase_ = Phase::kSteady;
  Tell(now, NoteKind::kJob,
       missing.empty() ? "all members of the stored world are back"
                       : absl::StrCat("not back in time: member ", absl::StrJoin(missing, ", ")),
       out);
  if (!missing.empty()) return Lose(now, missing, "it did not reconnect to the new leader", out);
  // A loss of an earlier epoch was healed by the commit that the member learns of now.
  broken_ |= std::any_of(peers_.begin(), peers_.end(), [&](const auto& each) {
    return each.second.broken && each.second.hello_epoch == record_.world.epoch;
  });
  if (NobodyStays()) return StopReclaimed(now, out);
  if (broken_) return TellLost(now, out);
  RetireUnused(out);
  BeginNext(now, out);
}

void Leader::OnDisconnect(Time now, MemberId member, Out* out) {
  now = Awake(now);
  const auto it = peers_.find(member);
  if (it == peers_.end() || !it->second.connected) return;
  it->second.connected = false;
  if (it->second.finished || record_.world.epoch == 0 || idle_phase_ == Phase::kRecovering ||
      idle_phase_ == Phase::kStopped) {
    return;
  }
  if (!it->second.cooperates && record_.world.SlotOf(member) && !registry_.HasAny(member)) {
    return Finish(now, member, out);  // a normal end: the member had destroyed its communicators
  }
  Lose(now, {member}, "its connection ended", out);
}

// ---- time ---------------------------------------------------------------------------------------

Time Leader::Awake(Time now) {
  const Duration stalled = clock_.stalled();
  const Time awake = clock_.Read(now);
  // The clock counts one step of each stall. Silence counts none: no member is heard.
  if (clock_.stalled() > stalled) silence_.Skip(awake);
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
  if (write_again_ && now >= *write_again_) {
    write_again_.reset();
    out->push_back(CompareAndSwap{writing_->revision - 1, *writing_});
  }
  CheckSilence(now, out);
  CheckDrains(now, out);
  TryEndRecovery(now, out);
  if (transition_ && transition_->deadline && now >= *transition_->deadline) {
    OnPhaseDeadline(now, out);
  }
}

std::optional<Time> Leader::NextDeadline() const {
  if (idle_phase_ == Phase::kStopped) return std::nullopt;
  std::optional<Time> next;
  const auto at = [&](Time t) { next = next ? std::min(*next, t) : t; };
  if (write_again_) at(*write_again_);
  if (recover_by_) at(*recover_by_);
  if (transition_ && transition_->deadline) at(*transition_->deadline);
  for (const uint64_t id : DueDrains()) at(*requests_.at(id).gone_by);
  bool members = false;
  for (const auto& [id, peer] : peers_) {
    if (!peer.connected || peer.finished || peer.lost) continue;
    members = true;
    if (const std::optional<Time> due = silence_.Due(id)) at(*due);
  }
  // Messages also read the clock. A tick at a fixed time after the last reading would never come
  // while members speak often.
  if (next || members) at(ticked_ + clock_.step() / 2);
  if (next) next = clock_.OwnersTime(*next);
  return next;
}

// ---- output -------------------------------------------------------------------------------------

void Leader::Send(MemberId member, const Message& message, Out* out) {
  if (ToldOf(member)) out->push_back(SendTo{member, message});
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

RequestStatus Leader::StatusOf(uint64_t request) const {
  const auto it = requests_.find(request);
  return it == requests_.end() ? RequestStatus{} : it->second.status;
}

std::vector<MemberStatus> Leader::Members(Time now) const {
  now = clock_.At(now);
  std::vector<MemberStatus> all;
  for (const auto& [id, peer] : peers_) {
    all.push_back({id, record_.world.SlotOf(id), peer.connected, peer.cooperates, peer.finished,
                   peer.counts, silence_.Since(now, id)});
  }
  return all;
}

}  // namespace rewire::elastic
