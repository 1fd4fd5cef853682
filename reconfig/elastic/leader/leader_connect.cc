// The connections of members: which members are accepted, the first messages to a member, and the
// end of a connection. See leader.h. Owned by the leader's thread.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {

void Leader::Refuse(MemberId member, const std::string& reason, Out* out) {
  out->push_back(SendTo{member, Refused{reason}});
  out->push_back(Kick{member});
}

void Leader::OnConnect(Time now, const Hello& hello, Out* out) {
  now = Awake(now);
  const MemberId id = hello.member;
  if (idle_phase_ == Phase::kStopped) return Refuse(id, "the job has ended", out);
  const Peer* const known = peers_.Find(id);
  if (known != nullptr && known->lost) {
    return Refuse(id, absl::StrCat("member ", id, " counts as lost: it was silent or disconnected"),
                  out);
  }
  const bool joiner = transition_ && transition_->IsJoiner(id);
  bool visitor = false;
  const std::optional<uint32_t> slot = record_.world.SlotOf(id);
  if (record_.world.epoch == 0) {
    const auto& initial = options_.initial_members;
    if (std::find(initial.begin(), initial.end(), id) == initial.end()) {
      return Refuse(id, absl::StrCat("member ", id, " is not a member of this job"), out);
    }
  } else if (slot) {
    if (record_.world.members[*slot].incarnation != hello.incarnation) {
      std::string why = absl::StrCat("member ", id, " is in the world as another process");
      if (idle_phase_ == Phase::kRecovering) {
        absl::StrAppend(&why,
                        ": the store is of a job that has ended or still runs (name a new file "
                        "with --store, or remove this file after the old job has ended)");
      }
      return Refuse(id, why, out);
    }
  } else if (!joiner) {
    // The member left the world, or was to join the world. SendWelcome() sends the record,
    // which tells the member the outcome.
    visitor = true;
  }
  const bool again = known != nullptr && known->connected;
  if (again && joiner && known->incarnation != hello.incarnation) {
    return Refuse(id, absl::StrCat("member ", id, " is connected as another process"), out);
  }
  Peer& peer = peers_.Know(id);
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
    // Messages in flight on the old connection are lost, so all members prepare again.
    Restart(now, absl::StrCat("member ", id, " reconnected"), out);
  }
  WelcomeDue(now, out);
  TryForm(now, out);
  TryEndRecovery(now, out);
  StopUnformable(now, out);
  // A visitor is forgotten by now.
  const Peer* const waits = peers_.Find(id);
  if (record_.world.epoch == 0 && waits != nullptr && waits->connected) {
    const auto missing = static_cast<uint32_t>(peers_.Missing(options_.initial_members).size());
    out->push_back(SendTo{id, Forming{missing}});
  }
}

// Sends the due Welcomes as soon as this leader knows the committed world.
void Leader::WelcomeDue(Time now, Out* out) {
  if (!fenced_ || record_.world.epoch == 0 || phase() == Phase::kCommitting) return;
  std::vector<MemberId> due;
  for (const auto& [id, peer] : peers_.all()) {
    if (peer.connected && peer.welcome_due) due.push_back(id);
  }
  for (MemberId id : due) SendWelcome(now, id, out);
  RetireUnused(out);
  if (transition_ && transition_->phase == Phase::kReserve) TryPrepare(now, out);
}

bool Leader::MissedCommit(const Peer& peer) const {
  return peer.hello_epoch != 0 && peer.hello_epoch < record_.world.epoch && record_.cuts.empty();
}

void Leader::SettleReports() {
  for (const auto& [id, peer] : peers_.all()) {
    if (peer.connected && MissedCommit(peer) && record_.world.SlotOf(id))
      registry_.Settle(id, WorldIds());
  }
}

void Leader::SendWelcome(Time now, MemberId member, Out* out) {
  Peer& peer = peers_.Know(member);
  peer.welcome_due = false;
  if (peer.visitor) {
    const std::optional<uint32_t> slot = record_.world.SlotOf(member);
    peer.visitor = !slot || record_.world.members[*slot].incarnation != peer.incarnation;
  }
  if (peer.visitor) {
    if (member >= record_.next_member) {
      Refuse(member, absl::StrCat("member ", member, " is not a member of this job"), out);
    } else {
      Send(member, Welcome{record_.world, false, NamesKey(options_.job_key)}, out);
      Send(member, Commit{record_}, out);
      out->push_back(Kick{member});
    }
    Forget(member);
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
    Send(member, Lost{record_.world.epoch, {peers_.lost().begin(), peers_.lost().end()}}, out);
  }
  Tell(now, NoteKind::kMember,
       absl::StrCat("member ", member, " was informed of epoch ", record_.world.epoch), out);
}

void Leader::OnDisconnect(Time now, MemberId member, Out* out) {
  now = Awake(now);
  Peer* const peer = peers_.Find(member);
  if (peer == nullptr || !peer->connected) return;
  peer->connected = false;
  if (peer->finished || record_.world.epoch == 0 || idle_phase_ == Phase::kRecovering ||
      idle_phase_ == Phase::kStopped) {
    return;
  }
  if (!peer->cooperates && record_.world.SlotOf(member) && !registry_.HasAny(member)) {
    return Finish(now, member, out);  // a normal end: the member had destroyed its communicators
  }
  Lose(now, {member}, "its connection ended", out);
}

}  // namespace rewire::elastic
