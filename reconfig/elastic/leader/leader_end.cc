// The end of a transition: after the commit, or by an abort. See leader.h. Owned by the leader's
// thread.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {
namespace {

constexpr uint32_t kLossAttempts = 4;
constexpr milliseconds kFirstLossPause(500);
constexpr uint32_t kRestarts = 16;
constexpr milliseconds kFirstPause(50);
constexpr milliseconds kLongestPause(4000);

// The first restart begins at once: a program often makes one communicator alone. The pauses before
// the others let a program finish a series of communicators.
Duration PauseBefore(uint32_t restart) {
  Duration pause{};
  for (uint32_t i = 1; i < restart; ++i) {
    pause = std::clamp<Duration>(2 * pause, kFirstPause, kLongestPause);
  }
  return pause;
}

}  // namespace

// ---- COMMITTED ----------------------------------------------------------------------------------

void Leader::AfterCommit(Time now, Out* out) {
  Transition& t = *transition_;
  if (t.kind == TransitionKind::kSwap) {
    SendAll(t.olds, Decide{t.epoch, t.rounds.round(), true}, out);
  } else {
    registry_.MoveTo(t.target, t.groups);
    positions_.KeepOnly(t.target);
  }
  SendAll(t.Everyone(), Commit{record_}, out);
  if (t.kind == TransitionKind::kLoss) {
    broken_ = false;
    loss_attempts_ = 0;
  }
  Enter(now, Phase::kCommitted, options_.enter, out);
  // Members lost while the store was writing matter only if they are in the new world.
  peers_.KeepLost(t.target);
  if (t.kind != TransitionKind::kSwap) PostponeDrains(now);
  WelcomeDue(now, out);
  if (!peers_.lost().empty()) TellLost(now, out);
}

void Leader::OnEntered(Time now, MemberId from, const Entered& m, Out* out) {
  Transition& t = *transition_;
  if (t.phase != Phase::kCommitted || !t.InTarget(from)) {
    ++dropped_;
    return;
  }
  if (t.entered.insert(from).second) t.pause_ns = std::max(t.pause_ns, m.pause_ns);
  TryRetire(now, out);
}

void Leader::TryRetire(Time now, Out* out) {
  Transition& t = *transition_;
  for (MemberId m : t.target) {
    if (!t.entered.contains(m) && !peers_.Know(m).finished) return;
  }
  std::string done = absl::StrCat(t.what, ": epoch ", t.epoch, ", ", t.target.size(), " members");
  // A swap has no pause that a member could measure, and moves no state.
  if (t.kind != TransitionKind::kSwap) {
    absl::StrAppend(&done, ", longest pause ", t.pause_ns / 1000, " us, ", t.bytes_moved,
                    " bytes moved");
  }
  Tell(now, NoteKind::kDone, done, out);
  if (t.kind == TransitionKind::kBoundary) {
    const Duration took = now - t.began;
    usual_ = usual_ ? (*usual_ + took) / 2 : took;
  }
  RetireUnused(out);
  // Communicators pass their cuts when the program uses them, which may take hours.
  if (t.kind == TransitionKind::kSwap) return EndTransition(now, out);
  requests_.Resolve(t.requests, RequestState::kDone, t.what);
  Enter(now, Phase::kRetiring, options_.enter, out);
  TryEnd(now, out);
}

void Leader::OnPosition(Time now, MemberId from, const Position& m, Out* out) {
  Peer& peer = peers_.Know(from);
  if (peer.positions_due > 0) --peer.positions_due;
  if (positions_.Report(from, m)) host_waits_ += m.host_waits;
  RetireUnused(out);
  if (!transition_) return;
  if (transition_->phase == Phase::kReserve) TryPrepare(now, out);
  if (transition_ && transition_->phase == Phase::kRetiring) TryEnd(now, out);
}

void Leader::RetireUnused(Out* out) {
  if (idle_phase_ != Phase::kSteady || broken_) return;
  // A build beside a destruction can deadlock (shim/core/epoch_build.h). The loss of a member is
  // not planned: its build waits for no peer's destruction.
  const Transition* const t = transition_.get();
  if (t != nullptr && t->Planned() && t->phase == Phase::kPrepare &&
      options_.planted_bug != PlantedBug::kRetiredInBuild) {
    return;
  }
  const std::vector<MemberId> alive = Alive();
  const bool known = std::all_of(alive.begin(), alive.end(), [&](MemberId m) {
    return peers_.Told(m) && peers_.Find(m)->positions_due == 0;
  });
  if (!known) return;
  for (const auto& [member, generations] : positions_.TakeRetired(alive)) {
    Send(member, Retire{generations}, out);
  }
}

std::set<MemberId> Leader::Retired(const std::vector<MemberId>& members) const {
  std::set<MemberId> retired;
  for (MemberId m : members) {
    if (peers_.Finished(m) || !positions_.HasOldBefore(m, transition_->epoch)) retired.insert(m);
  }
  return retired;
}

void Leader::TryEnd(Time now, Out* out) {
  if (Transition::All(Retired(transition_->target), transition_->target)) EndTransition(now, out);
}

// Ends a committed transition. Its requests have been fulfilled, whatever else happened.
void Leader::EndTransition(Time now, Out* out) {
  requests_.Resolve(transition_->requests, RequestState::kDone, transition_->what);
  Tell(now, NoteKind::kProgress, absl::StrCat("ended: ", transition_->what), out);
  // Members that left stayed until now, so as to disturb neither the change nor old generations.
  for (MemberId m : transition_->olds) {
    const Peer* const peer = peers_.Find(m);
    if (transition_->InTarget(m) || peer == nullptr || record_.world.SlotOf(m)) continue;
    if (peer->connected) out->push_back(Kick{m});
    Forget(m);
  }
  transition_.reset();
  if (idle_phase_ == Phase::kSteady && peers_.lost().empty()) BeginNext(now, out);
}

// ---- ABORTED ------------------------------------------------------------------------------------

void Leader::DismissJoiners(const std::string& reason, Out* out) {
  for (MemberId m : transition_->joiners) {
    Send(m, Refused{reason}, out);
    if (const Peer* const peer = peers_.Find(m)) {
      if (peer->connected) out->push_back(Kick{m});
      Forget(m);
    }
    out->push_back(EndProcess{m});
    if (options_.planted_bug == PlantedBug::kDismissalEndsJob) out->push_back(EndJob{reason});
  }
}

void Leader::DropTransition(Time now, const std::string& reason, bool again, Out* out) {
  DismissJoiners(reason, out);
  if (again) {
    requests_.Resolve(transition_->requests, RequestState::kWaiting,
                      absl::StrCat("will be retried after: ", reason));
    requests_.PutBack(transition_->requests);
  } else {
    requests_.Resolve(transition_->requests, RequestState::kFailed, reason);
  }
  Tell(now, NoteKind::kFailed, absl::StrCat(transition_->what, ": ", reason), out);
  transition_.reset();
}

void Leader::AbortPlanned(Time now, const std::string& reason, bool again, Out* out) {
  if (transition_->phase > Phase::kReserve) {
    SendAll(transition_->olds, Abort{transition_->epoch, reason}, out);
  }
  DropTransition(now, reason, again, out);
  RetireUnused(out);
  BeginNext(now, out);
}

void Leader::RetryLoss(Time now, const std::string& reason, Out* out) {
  if (++loss_attempts_ >= kLossAttempts) {
    return StopJob(now, absl::StrCat("the world cannot be restored after a loss: ", reason), out);
  }
  SendAll(transition_->olds, Abort{transition_->epoch, reason}, out);
  DropTransition(now, reason, false, out);
  BeginNext(now, out);
  // A member that cannot take part may be about to end, which would be another loss.
  if (transition_) transition_->not_before = now + kFirstLossPause * (1 << (loss_attempts_ - 1));
}

void Leader::Restart(Time now, const std::string& reason, Out* out) {
  // A drain with a deadline is tried until then.
  const Time due = requests_.EarliestDeadline(transition_->requests).value_or(now);
  if (due <= now && transition_->restarts >= kRestarts) {
    const std::string why = absl::StrCat("given up after ", kRestarts, " restarts: ", reason);
    if (transition_->Planned()) return AbortPlanned(now, why, false, out);
    return RetryLoss(now, why, out);
  }
  SendAll(transition_->Everyone(), Abort{transition_->epoch, reason}, out);
  Tell(now, NoteKind::kProgress, absl::StrCat("preparation restarts: ", reason), out);
  auto next = std::make_unique<Transition>();
  next->kind = transition_->kind;
  next->target = transition_->target;
  next->olds = transition_->olds;
  next->joiners = transition_->joiners;
  next->next_member = transition_->next_member;
  next->requests = transition_->requests;
  next->what = transition_->what;
  next->restarts = transition_->restarts + 1;
  next->failed_builds = transition_->failed_builds;
  if (next->Planned()) {
    // RESERVE must not reach its own deadline by the pause.
    Duration pause = std::min(
        {PauseBefore(next->restarts - next->failed_builds), options_.build / 2, options_.join / 2});
    if (due > now) pause = std::min(pause, (due - now) / 4);
    next->not_before = now + pause;
  }
  transition_.reset();
  RetireUnused(out);
  Begin(now, std::move(next), out);
}

}  // namespace rewire::elastic
