// The world record: the first world, the fence after a restart, and every write to the store. See
// leader.h. Owned by the leader's thread.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {

void Leader::Write(Time now, const WorldRecord& record, Out* out) {
  if (write_.record() == nullptr) write_.Begin(now, record, record_.revision, out);
}

// Stores the transition's epoch and the ids of its new members, so that no later leader uses them.
void Leader::TryReserve(Time now, Out* out) {
  if (!transition_ || transition_->reserved || write_.record() != nullptr) return;
  WorldRecord record = record_;
  record.reserved_epoch = transition_->epoch;
  record.next_member = std::max(record.next_member, transition_->next_member);
  Write(now, record, out);
}

void Leader::OnStoreResult(Time now, const absl::StatusOr<StoreAnswer>& answer, Out* out) {
  now = Awake(now);
  if (write_.record() == nullptr || idle_phase_ == Phase::kStopped) return;
  if (!answer.ok()) {
    const std::string error(answer.status().message());
    const bool fresh = write_.OnError(now, error);
    const std::string text = absl::StrCat("the store does not answer: ", error);
    if (transition_) {
      requests_.Resolve(transition_->requests, RequestState::kRunning,
                        absl::StrCat(transition_->what, ": waits: ", text));
    }
    if (fresh) Tell(now, NoteKind::kWarning, text, out);
    return;
  }
  if (write_.OnAnswer(now)) {
    if (transition_)
      requests_.Resolve(transition_->requests, RequestState::kRunning, transition_->what);
    Tell(now, NoteKind::kProgress, "the store answers again", out);
  }
  const bool written = write_.WrittenBy(*answer);
  const WorldRecord own = write_.Take();
  if (written) return Written(now, own, out);
  if (!fenced_ || options_.planted_bug == PlantedBug::kDoubleCommit) {
    // The previous leader was still writing. Its record is valid.
    if (!fenced_) record_ = answer->current;
    const WorldRecord again = fenced_ ? own : record_;
    record_.revision = answer->current.revision;
    return Write(now, again, out);
  }
  const std::string reason = absl::StrCat("another leader has written the world record (revision ",
                                          answer->current.revision, "); this one ends");
  if (transition_) {
    requests_.Resolve(transition_->requests, RequestState::kFailed, reason);
    transition_.reset();
  }
  requests_.FailWaiting(reason);
  idle_phase_ = Phase::kStopped;
  // Members find the other leader when they reconnect.
  for (const auto& [id, peer] : peers_.all()) {
    if (std::exchange(peers_.Know(id).connected, false)) out->push_back(Kick{id});
  }
  Tell(now, NoteKind::kJob, reason, out);
}

void Leader::Written(Time now, const WorldRecord& written, Out* out) {
  const bool formed = record_.world.epoch == 0 && written.world.epoch > 0 && fenced_;
  const bool commit = transition_ && transition_->phase == Phase::kCommitting &&
                      written.world.epoch == transition_->epoch;
  record_ = written;
  if (!fenced_) {
    fenced_ = true;
    if (record_.world.epoch > 0 && idle_phase_ == Phase::kForming) {
      idle_phase_ = Phase::kRecovering;  // the previous leader had formed the world
      recovery_.Begin(now);
    }
    SettleReports();
    WelcomeDue(now, out);
    TryForm(now, out);
    TryEndRecovery(now, out);
    return;
  }
  if (formed) {
    idle_phase_ = Phase::kSteady;
    Tell(now, NoteKind::kJob,
         absl::StrCat("the world is formed: ", record_.world.members.size(), " members"), out);
    WelcomeDue(now, out);
    std::vector<MemberId> gone;
    for (MemberId id : WorldIds()) {
      if (!peers_.Know(id).connected) gone.push_back(id);
    }
    if (!gone.empty()) return Lose(now, gone, "it disconnected while the world was formed", out);
    return BeginNext(now, out);
  }
  if (commit) {
    AfterCommit(now, out);
  } else if (transition_ && transition_->phase == Phase::kReserve && !transition_->reserved &&
             written.reserved_epoch >= transition_->epoch) {
    transition_->reserved = true;
    AfterReserve(now, out);
  } else {
    TryReserve(now, out);
    if (!transition_) BeginNext(now, out);
  }
}

void Leader::TryForm(Time now, Out* out) {
  if (record_.world.epoch != 0 || !fenced_ || write_.record() != nullptr ||
      idle_phase_ != Phase::kForming)
    return;
  WorldRecord record = record_;
  for (MemberId id : options_.initial_members) {
    const Peer* const peer = peers_.Find(id);
    if (peer == nullptr || !peer->connected) return;
    record.world.members.push_back({id, peer->incarnation, peer->data_address});
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
  const std::vector<MemberId> missing = peers_.Missing(WorldIds());
  const size_t members = record_.world.members.size();
  if (!recovery_.TryEnd(now, missing.size(), members, peers_.AllSilent(now))) return;
  idle_phase_ = Phase::kSteady;
  Tell(now, NoteKind::kJob,
       missing.empty()
           ? "all members of the stored world are back"
           : absl::StrCat("not back in time: member ", absl::StrJoin(missing, ", "),
                          " (limit_ms=", static_cast<int64_t>(ToMilliseconds(options_.grace)), ")"),
       out);
  if (!missing.empty()) return Lose(now, missing, "it did not reconnect to the new leader", out);
  // A loss of an earlier epoch was healed by the commit that the member learns of now.
  broken_ |= std::any_of(peers_.all().begin(), peers_.all().end(), [&](const auto& each) {
    return each.second.broken && each.second.hello_epoch == record_.world.epoch;
  });
  if (NobodyStays()) return StopReclaimed(now, out);
  if (broken_) return TellLost(now, out);
  RetireUnused(out);
  BeginNext(now, out);
}

}  // namespace rewire::elastic
