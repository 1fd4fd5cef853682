// The leader's writes to the store: one compare-and-swap at a time, retried until its outcome is
// known. See leader.h. Owned by the leader's thread.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {

void Leader::Write(Time now, const WorldRecord& record, Out* out) {
  if (writing_) return;
  writing_ = record;
  write_began_ = now;
  writing_->revision = record_.revision + 1;
  out->push_back(CompareAndSwap{record_.revision, *writing_});
}

// Stores the transition's epoch and the ids of its new members, so that no later leader uses them.
void Leader::TryReserve(Time now, Out* out) {
  if (!transition_ || transition_->reserved || writing_) return;
  WorldRecord record = record_;
  record.reserved_epoch = transition_->epoch;
  record.next_member = std::max(record.next_member, transition_->next_member);
  Write(now, record, out);
}

void Leader::OnStoreResult(Time now, const absl::StatusOr<StoreAnswer>& answer, Out* out) {
  now = Awake(now);
  if (!writing_ || idle_phase_ == Phase::kStopped) return;
  if (!answer.ok()) {
    write_again_ = now + options_.store_retry;
    const std::string error(answer.status().message());
    const std::string text = absl::StrCat("the store does not answer: ", error);
    if (transition_) {
      Resolve(transition_->requests, RequestState::kRunning,
              absl::StrCat(transition_->what, ": waits: ", text));
    }
    if (std::exchange(store_error_, error) == error) return;
    return Tell(now, NoteKind::kWarning, text, out);
  }
  write_again_.reset();
  if (!std::exchange(store_error_, "").empty()) {
    if (transition_) Resolve(transition_->requests, RequestState::kRunning, transition_->what);
    Tell(now, NoteKind::kProgress, "the store answers again", out);
  }
  store_took_ = now - write_began_;
  // After a lost answer and a second swap, the store already has this leader's record.
  if (answer->swapped || answer->current == *writing_) {
    const WorldRecord written = *std::exchange(writing_, std::nullopt);
    return Written(now, written, out);
  }
  if (!fenced_ || options_.planted_bug == PlantedBug::kDoubleCommit) {
    // The previous leader was still writing. Its record is valid.
    if (!fenced_) record_ = answer->current;
    const WorldRecord again = fenced_ ? *writing_ : record_;
    record_.revision = answer->current.revision;
    writing_.reset();
    return Write(now, again, out);
  }
  writing_.reset();
  const std::string reason = absl::StrCat("another leader has written the world record (revision ",
                                          answer->current.revision, "); this one ends");
  if (transition_) {
    Resolve(transition_->requests, RequestState::kFailed, reason);
    transition_.reset();
  }
  Resolve(queue_, RequestState::kFailed, reason);
  queue_.clear();
  idle_phase_ = Phase::kStopped;
  // Members find the other leader when they reconnect.
  for (auto& [id, peer] : peers_) {
    if (peer.connected) out->push_back(Kick{id});
    peer.connected = false;
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
      recover_by_ = now + options_.grace;
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
      if (!peers_[id].connected) gone.push_back(id);
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

}  // namespace rewire::elastic
