// The leader's reaction to lost, finished and silent members, and the end of a job. See leader.h.
// Owned by the leader's thread.
#include <algorithm>

#include "absl/strings/str_cat.h"
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
    if (lost_.contains(id)) continue;
    if (leaver) {
      if (const auto it = peers_.find(id); it != peers_.end()) {
        if (it->second.connected) out->push_back(Kick{id});
        ForgetReports(id);
        silence_.Forget(id);
        peers_.erase(it);
      }
      continue;
    }
    Peer& peer = peers_[id];
    peer.lost = true;
    if (peer.connected) out->push_back(Kick{id});
    peer.connected = false;
    (joiner ? of_joiners : of_world) = true;
    if (!joiner) lost_.insert(id);
    Tell(now, NoteKind::kWarning, absl::StrCat("member ", id, " is lost: ", why), out);
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
      DropTransition(now, "a member was lost", transition_->Planned(), out);
    } else {
      EndTransition(now, out);
    }
  }
  broken_ = true;
  loss_attempts_ = 0;
  SendAll(Alive(), Lost{record_.world.epoch, {lost_.begin(), lost_.end()}}, out);
  BeginNext(now, out);
}

void Leader::Finish(Time now, MemberId member, Out* out) {
  Peer& peer = peers_[member];
  if (peer.finished || !record_.world.SlotOf(member)) return;
  peer.finished = true;
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
      std::all_of(ids.begin(), ids.end(), [&](MemberId m) { return peers_[m].finished; });
  if (nobody && idle_phase_ != Phase::kStopped) {
    if (!all) return StopJob(now, "the last members finished after others were lost", out);
    done_ = true;
    idle_phase_ = Phase::kStopped;
    Resolve(queue_, RequestState::kFailed, "the job has finished");
    queue_.clear();
    Tell(now, NoteKind::kJob, "every member has finished", out);
  }
}

void Leader::OnFailedExit(Time now, MemberId member, const std::string& how, Out* out) {
  now = Awake(now);
  const auto it = peers_.find(member);
  if (it == peers_.end() || idle_phase_ == Phase::kStopped || !record_.world.SlotOf(member)) return;
  Peer& peer = it->second;
  // The end of such a member's connection counts as a normal end.
  const bool bare = !peer.cooperates && !registry_.HasAny(member);
  if (!peer.finished && !bare) return;
  peer.finished = false;
  Lose(now, {member},
       absl::StrCat(peer.cooperates ? "it had detached" : "it had no communicators", ", and ", how),
       out);
}

void Leader::StopJob(Time now, const std::string& reason, Out* out) {
  if (transition_) DropTransition(now, reason, false, out);
  idle_phase_ = Phase::kStopped;
  Resolve(queue_, RequestState::kFailed, reason);
  queue_.clear();
  Tell(now, NoteKind::kJob, absl::StrCat("the job is stopped: ", reason), out);
  SendAll(Alive(), Stop{reason}, out);
  out->push_back(EndJob{reason, !Alive().empty()});
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
  return std::all_of(members.begin(), members.end(), [&](MemberId m) {
    const auto peer = peers_.find(m);
    return peer != peers_.end() && peer->second.reclaimed;
  });
}

void Leader::StopReclaimed(Time now, Out* out) {
  StopJob(now,
          "every member of the world has a reclaim notice: no member is left to take the state",
          out);
}

// ---- drains with a deadline ---------------------------------------------------------------------

std::vector<MemberId> Leader::NotGone(const Request& request) const {
  std::vector<MemberId> members = Alive();
  std::erase_if(members, [&](MemberId m) {
    const std::vector<MemberId>& named = request.change.members;
    return std::find(named.begin(), named.end(), m) == named.end();
  });
  return members;
}

std::vector<uint64_t> Leader::DueDrains() const {
  std::vector<uint64_t> due = queue_;
  if (transition_ && transition_->BeforeCommit()) {
    due.insert(due.end(), transition_->requests.begin(), transition_->requests.end());
  }
  std::erase_if(due, [&](uint64_t id) {
    const Request& request = requests_.at(id);
    return !request.gone_by || NotGone(request).empty();
  });
  return due;
}

void Leader::CheckDrains(Time now, Out* out) {
  for (const uint64_t id : DueDrains()) {
    Request& request = requests_.at(id);
    if (now < *request.gone_by) continue;
    // A stalled host costs no member, and the recovery from a loss may need the member's copies.
    if (silence_.OfAll(now) || broken_ || idle_phase_ == Phase::kRecovering) {
      request.gone_by = now + options_.silence;
      continue;
    }
    request.gone_by.reset();
    const std::vector<MemberId> late = NotGone(request);
    Lose(now, late, absl::StrCat("it did not leave in time: ", Describe(request.change)), out);
    for (const MemberId m : late) out->push_back(EndProcess{m});
  }
}

// ---- silence ------------------------------------------------------------------------------------

void Leader::Heard(Time now, MemberId member) {
  peers_[member].told_starved = false;
  const bool of_world = record_.world.epoch == 0 || record_.world.SlotOf(member);
  if (of_world) told_silence_ = false;
  const Duration gap = silence_.Heard(now, member, of_world);
  if (gap == Duration{}) return;
  // The silence of all members counts for no deadline of the recovery. The other members get the
  // same time to answer before a phase costs them.
  if (recover_by_) *recover_by_ += gap;
  if (transition_ && transition_->deadline && transition_->CostsMembers()) {
    transition_->deadline = std::max(*transition_->deadline, now + options_.silence);
  }
}

std::vector<MemberId> Leader::Quiet() const {
  std::vector<MemberId> quiet;
  for (const auto& [id, peer] : peers_) {
    if (!peer.connected || peer.finished || peer.lost) continue;
    if (silence_.Of(id) >= options_.silence / 4) quiet.push_back(id);
  }
  return quiet;
}

void Leader::OnStarved(Time now, MemberId member, Duration waited, Out* out) {
  now = Awake(now);
  silence_.Starved(now, member, waited);
  const auto peer = peers_.find(member);
  if (peer == peers_.end() || peer->second.told_starved) return;
  peer->second.told_starved = true;
  Tell(now, NoteKind::kWarning,
       absl::StrCat("member ", member,
                    " is silent because its threads wait for a processor: the "
                    "host is overloaded, and this time does not count for REWIRE_SILENCE_MS"),
       out);
}

void Leader::CheckSilence(Time now, Out* out) {
  silence_.Count(now);
  if (silence_.OfAll(now) && !told_silence_ && !Alive().empty()) {
    told_silence_ = true;
    Tell(now, NoteKind::kWarning,
         absl::StrCat(
             "no member of the world has sent a message for REWIRE_SILENCE_MS: the host has "
             "stalled or all members are stopped, and none of them counts as lost"),
         out);
  }
  std::vector<MemberId> silent;
  for (const auto& [id, peer] : peers_) {
    if (!peer.connected || peer.finished || peer.lost) continue;
    const bool too_long = options_.planted_bug == PlantedBug::kSilenceOfAll
                              ? silence_.Since(now, id) >= options_.silence
                              : silence_.TooLong(id);
    if (!too_long) continue;
    // A member that was released from the world is silent, and stays until the change has ended.
    const bool let_go =
        transition_ && transition_->phase > Phase::kCommitting && !record_.world.SlotOf(id);
    if (!let_go) silent.push_back(id);
  }
  if (silent.empty()) return;
  if (idle_phase_ != Phase::kForming && idle_phase_ != Phase::kRecovering) {
    return Lose(now, silent, "it was silent for REWIRE_SILENCE_MS, and others were not", out);
  }
  for (MemberId id : silent) {
    peers_[id].connected = false;
    out->push_back(Kick{id});
  }
}

}  // namespace rewire::elastic
