// The leader's reaction to lost, finished and silent members, and the end of a job. See leader.h.
// Owned by the leader's thread.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {

void Leader::Lose(Time now, const std::vector<MemberId>& members, const std::string& why,
                  Out* out) {
  bool of_world = false;
  bool of_joiners = false;
  for (MemberId id : members) {
    const bool joiner = transition_ && transition_->BeforeCommit() && transition_->IsJoiner(id);
    const bool pending =
        transition_ && transition_->phase == Phase::kCommitting && transition_->IsJoiner(id);
    const bool leaver = !joiner && !pending && !record_.world.SlotOf(id);
    if (peers_.lost().contains(id)) continue;
    if (leaver) {
      if (const Peer* const peer = peers_.Find(id)) {
        if (peer->connected) out->push_back(Kick{id});
        Forget(id);
      }
      continue;
    }
    if (peers_.Lose(id, !joiner)) out->push_back(Kick{id});
    std::string loss = absl::StrCat("member ", id, " is lost: ", why);
    Tell(now, NoteKind::kWarning, loss, out);
    // Members that fail after a loss are lost too, and the first loss is the cause.
    if (!joiner && !broken_ && !of_world) loss_ = std::move(loss);
    (joiner ? of_joiners : of_world) = true;
  }
  if (of_world) {
    // AfterCommit does TellLost after the store's answer.
    if (transition_ && transition_->phase == Phase::kCommitting) return;
    return TellLost(now, out);
  }
  if (of_joiners) {
    AbortPlanned(now, absl::StrCat("a new member was lost before it joined: ", why), false, out);
  }
}

// Members of the committed world are lost (or were lost before this leader started). All other
// members abort their generations at once, and the current transition ends.
void Leader::TellLost(Time now, Out* out) {
  if (transition_) {
    if (transition_->BeforeCommit()) {
      DropTransition(now, loss_, transition_->Planned(), out);
    } else {
      EndTransition(now, out);
    }
  }
  broken_ = true;
  loss_attempts_ = 0;
  SendAll(Alive(), Lost{record_.world.epoch, {peers_.lost().begin(), peers_.lost().end()}}, out);
  BeginNext(now, out);
}

void Leader::Finish(Time now, MemberId member, Out* out) {
  Peer& peer = peers_.Know(member);
  if (peer.finished || !record_.world.SlotOf(member)) return;
  peer.finished = true;
  peer.awaited = !peer.cooperates && registry_.HasAny(member);
  Tell(now, NoteKind::kMember, absl::StrCat("member ", member, " has finished"), out);
  const std::string reason = absl::StrCat("member ", member, " has finished its program");
  if (transition_ && transition_->BeforeCommit()) {
    if (transition_->Planned()) {
      AbortPlanned(now, reason, false, out);
    } else {
      DropTransition(now, reason, false, out);
      BeginNext(now, out);
    }
  } else if (transition_ && transition_->phase == Phase::kCommitted) {
    TryRetire(now, out);
  } else if (transition_ && transition_->phase == Phase::kRetiring) {
    TryEnd(now, out);
  }
  const std::vector<MemberId> ids = WorldIds();
  const bool nobody = Alive().empty();
  const bool all =
      std::all_of(ids.begin(), ids.end(), [&](MemberId m) { return peers_.Know(m).finished; });
  // Members that have not come back after another leader's end are not alive yet.
  if (nobody && !all && idle_phase_ == Phase::kRecovering) return;
  if (nobody && idle_phase_ != Phase::kStopped) {
    if (!all) return StopJob(now, "the last members finished after others were lost", out);
    done_ = true;
    idle_phase_ = Phase::kStopped;
    requests_.FailWaiting("the job has finished");
    Tell(now, NoteKind::kJob, "every member has finished", out);
  }
}

void Leader::OnFailedExit(Time now, MemberId member, const std::string& how, Out* out) {
  now = Awake(now);
  if (IsForming(member)) return StopForming(now, {member}, how, out);
  Peer* const peer = peers_.Find(member);
  if (peer == nullptr || idle_phase_ == Phase::kStopped || !record_.world.SlotOf(member)) return;
  // The end of such a member's connection counts as a normal end.
  const bool bare = !peer->cooperates && !registry_.HasAny(member);
  if (!peer->finished && !bare) return;
  const char* const before = peer->cooperates ? "it had detached"
                             : peer->awaited  ? "it had begun to end with status 0"
                                              : "it had no communicators";
  LoseFinished(now, {member}, absl::StrCat(before, ", and ", how), out);
}

void Leader::LoseAndEnd(Time now, const std::vector<MemberId>& members, const std::string& why,
                        Out* out) {
  Lose(now, members, why, out);
  for (const MemberId m : members) out->push_back(EndProcess{m});
}

void Leader::OnEndBeforeWorld(Time now, MemberId member, Out* out) {
  now = Awake(now);
  if (!IsForming(member)) return;
  never_come_.push_back(member);
  StopUnformable(now, out);
}

void Leader::StopUnformable(Time now, Out* out) {
  if (never_come_.empty() || !IsForming(never_come_.front())) return;
  const bool waits = std::any_of(peers_.all().begin(), peers_.all().end(), [](const auto& p) {
    return p.second.connected && p.second.cooperates;
  });
  if (waits) StopForming(now, never_come_, "ended with status 0", out);
}

void Leader::LoseFinished(Time now, const std::vector<MemberId>& members, const std::string& why,
                          Out* out) {
  for (MemberId id : members) {
    Peer& peer = peers_.Know(id);
    peer.finished = false;
    peer.awaited = false;
  }
  Lose(now, members, why, out);
}

void Leader::CheckEnds(Time now, Out* out) {
  if (idle_phase_ == Phase::kForming || idle_phase_ == Phase::kRecovering) return;
  std::vector<MemberId> awaited = peers_.AwaitedTooLong();
  // Exit handlers may have destroyed the communicators.
  std::erase_if(awaited,
                [&](MemberId id) { return !record_.world.SlotOf(id) || !registry_.HasAny(id); });
  if (!awaited.empty()) {
    LoseFinished(now, awaited,
                 "its program ended with status 0, and others went on for REWIRE_SILENCE_MS", out);
  }
  for (const MemberId id : WorldIds()) {
    if (Alive().empty() || !peers_.NewlyFinishedLong(id)) continue;
    Tell(
        now, NoteKind::kWarning,
        absl::StrCat("member ", id,
                     " has detached, and others have gone on for REWIRE_SILENCE_MS: those that use "
                     "a communicator with it wait without end"),
        out);
  }
}

bool Leader::IsForming(MemberId member) const {
  const std::vector<MemberId>& initial = options_.initial_members;
  // While the first world is written, the loss of a member waits for the store's answer.
  const bool written = write_.record() != nullptr && write_.record()->world.epoch > 0;
  return idle_phase_ == Phase::kForming && record_.world.epoch == 0 && !written &&
         std::find(initial.begin(), initial.end(), member) != initial.end();
}

// The other members may wait for the lost ones inside NCCL without end.
void Leader::StopForming(Time now, const std::vector<MemberId>& lost, const std::string& how,
                         Out* out) {
  const std::string reason = absl::StrCat("member ", absl::StrJoin(lost, ", "), " ", how,
                                          " before all initial members had connected");
  StopJob(now, reason, out);
  for (const auto& [id, peer] : peers_.all()) {
    if (std::exchange(peers_.Know(id).connected, false)) Refuse(id, reason, out);
  }
}

void Leader::StopJob(Time now, const std::string& reason, Out* out) {
  if (transition_) DropTransition(now, reason, false, out);
  const bool forming = idle_phase_ == Phase::kForming;
  idle_phase_ = Phase::kStopped;
  requests_.FailWaiting(reason);
  Tell(now, NoteKind::kJob, absl::StrCat("the job is stopped: ", reason), out);
  SendAll(Alive(), Stop{reason}, out);
  out->push_back(EndJob{reason, forming || !Alive().empty()});
}

bool Leader::NobodyStays() const {
  // Members that have not come back after another leader's end may have no notice.
  if (idle_phase_ == Phase::kRecovering) return false;
  std::vector<MemberId> members = Alive();
  if (members.empty()) return false;
  if (transition_ && transition_->phase <= Phase::kCommitting) {
    const std::vector<MemberId>& joiners = transition_->joiners;
    members.insert(members.end(), joiners.begin(), joiners.end());
  }
  return peers_.Reclaimed(members);
}

void Leader::StopReclaimed(Time now, Out* out) {
  StopJob(now,
          "every member of the world has a reclaim notice: no member is left to take the state",
          out);
}

// ---- silence ------------------------------------------------------------------------------------

void Leader::Heard(Time now, MemberId member) {
  const bool of_world = record_.world.epoch == 0 || record_.world.SlotOf(member);
  const Duration gap = peers_.Heard(now, member, of_world);
  if (gap == Duration{}) return;
  // The silence of all members counts for no deadline of the recovery. The other members get the
  // same time to answer before a phase costs them.
  recovery_.Postpone(gap);
  if (transition_ && transition_->deadline && transition_->CostsMembers()) {
    transition_->deadline = std::max(*transition_->deadline, now + options_.silence);
  }
}

void Leader::OnStarved(Time now, MemberId member, Duration waited, Out* out) {
  now = Awake(now);
  if (!peers_.Starved(now, member, waited)) return;
  Tell(now, NoteKind::kWarning,
       absl::StrCat("member ", member,
                    " is silent because its threads wait for a processor: the "
                    "host is overloaded, and this time does not count for REWIRE_SILENCE_MS"),
       out);
}

void Leader::CheckSilence(Time now, Out* out) {
  peers_.Count(now);
  if (peers_.AllSilent(now) && !Alive().empty() && peers_.NewlyAllSilent(now)) {
    Tell(now, NoteKind::kWarning,
         absl::StrCat(
             "no member of the world has sent a message for REWIRE_SILENCE_MS: the host has "
             "stalled or all members are stopped, and none of them counts as lost"),
         out);
  }
  std::vector<MemberId> silent =
      peers_.TooSilent(now, options_.planted_bug == PlantedBug::kSilenceOfAll);
  if (transition_ && transition_->phase > Phase::kCommitting) {
    // A member that was released from the world is silent, and stays until the change has ended.
    std::erase_if(silent, [&](MemberId id) { return !record_.world.SlotOf(id); });
  }
  if (silent.empty()) return;
  if (IsForming(silent.front())) {
    return StopForming(now, silent, "was silent for REWIRE_SILENCE_MS", out);
  }
  if (idle_phase_ != Phase::kForming && idle_phase_ != Phase::kRecovering) {
    // A process that hangs would hold its GPU, and keep `rewire run` from returning.
    return LoseAndEnd(now, silent, "it was silent for REWIRE_SILENCE_MS, and others were not", out);
  }
  for (MemberId id : silent) {
    peers_.Know(id).connected = false;
    out->push_back(Kick{id});
  }
}

}  // namespace rewire::elastic
