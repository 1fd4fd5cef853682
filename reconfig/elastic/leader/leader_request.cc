// The leader's requests, their deadlines, and the next transition. See leader.h. Owned by the
// leader's thread.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {

// Checks the request against the world after all current and queued changes.
absl::Status Leader::CheckRequest(const ChangeRequest& request) const {
  if (idle_phase_ == Phase::kStopped) return absl::FailedPreconditionError("the job has ended");
  if (record_.world.epoch == 0) {
    return absl::FailedPreconditionError("the world is not formed yet: not all members attached");
  }
  const std::vector<MemberId> world = WorldIds();
  for (MemberId id : world) {
    const Peer* const peer = peers_.Find(id);
    if (peer == nullptr || peer->lost) continue;
    if (peer->finished) {
      return absl::FailedPreconditionError(
          absl::StrCat("the job is ending: member ", id, " has finished"));
    }
    if (request.kind != RequestKind::kRebuild && !peer->cooperates) {
      return absl::FailedPreconditionError(
          absl::StrCat("member ", id,
                       " runs a program that does not use Rewire's C API: its world "
                       "can be rebuilt, not changed"));
    }
  }
  if (broken_ && !peers_.Cooperate(world)) {
    return absl::FailedPreconditionError(
        "members were lost, and the program does not use Rewire's C API: the job cannot continue");
  }
  if (idle_phase_ == Phase::kSteady && !broken_) {
    const absl::Status ready = request.kind == RequestKind::kRebuild
                                   ? registry_.ReadyForSwap(world)
                                   : registry_.ReadyForBoundary(world);
    if (absl::IsFailedPrecondition(ready)) return ready;
    if (request.kind == RequestKind::kRebuild && registry_.communicators().empty()) {
      return absl::FailedPreconditionError("nothing to rebuild: no member has a communicator");
    }
  }
  std::vector<MemberId> members = transition_ ? transition_->target : world;
  if (!transition_) std::erase_if(members, [&](MemberId m) { return peers_.lost().contains(m); });
  MemberId next = std::max(record_.next_member, transition_ ? transition_->next_member : 0);
  members = requests_.AfterWaiting(std::move(members), options_.max_members, &next);
  ChangeRequest rest = request;
  const size_t leaving = std::erase_if(rest.members, [&](MemberId m) {
    return record_.world.SlotOf(m) && !peers_.lost().contains(m) &&
           std::find(members.begin(), members.end(), m) == members.end();
  });
  if (leaving > 0 && request.kind == RequestKind::kReplace) {
    return absl::FailedPreconditionError(absl::StrCat("replace: member=", request.members[0],
                                                      ": an earlier change removes this member"));
  }
  // An earlier change already removes all these members: accepted, because the drain may have a
  // deadline.
  if (leaving > 0 && rest.members.empty()) return absl::OkStatus();
  return ApplyRequest(rest, members, options_.max_members, &next).status();
}

absl::StatusOr<uint64_t> Leader::OnRequest(Time now, const ChangeRequest& request, Out* out) {
  return Enqueue(Awake(now), request, out);
}

absl::StatusOr<uint64_t> Leader::Enqueue(Time now, const ChangeRequest& request, Out* out) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  const auto gone_by = request.within ? std::optional<Time>(now + *request.within) : std::nullopt;
  const uint64_t id =
      requests_.Add(request, static_cast<uint32_t>(record_.world.members.size()), gone_by);
  if (request.within) {
    // Warns at once if earlier changes took longer than this deadline. The change still begins as
    // early as possible. A running change that removes these members goes on, unless it may wait
    // long for joiners.
    const bool removes =
        transition_ && std::none_of(request.members.begin(), request.members.end(),
                                    [this](MemberId m) { return transition_->InTarget(m); });
    const bool waits = transition_ && !transition_->joiners.empty() && !peers_.Reclaimed(Alive());
    const bool delayed = transition_ && (!removes || waits);
    const Duration need = usual_.value_or(Duration{});
    if (need > *request.within) {
      Tell(now, NoteKind::kWarning,
           absl::StrCat(Describe(request),
                        ": the deadline may be missed: earlier changes of members took ",
                        std::chrono::duration_cast<milliseconds>(need).count(),
                        " ms (if a member ends before the change is complete, its state comes from "
                        "the copies)"),
           out);
    }
    if (delayed && transition_->Planned() && transition_->phase < Phase::kPropose) {
      AbortPlanned(now, "a drain with a deadline goes first", true, out);
      return id;
    }
  }
  BeginNext(now, out);
  return id;
}

void Leader::BeginNext(Time now, Out* out) {
  if (transition_ || idle_phase_ != Phase::kSteady) return;
  if (NobodyStays()) return StopReclaimed(now, out);
  if (broken_) return BeginLoss(now, out);
  if (!requests_.empty()) BeginPlanned(now, out);
}

void Leader::BeginPlanned(Time now, Out* out) {
  MergedRequests merged = requests_.TakeMerged(record_, options_.max_members);
  for (const std::string& failure : merged.failures) Tell(now, NoteKind::kFailed, failure, out);
  if (merged.requests.empty()) return BeginNext(now, out);
  const std::vector<MemberId> world = WorldIds();
  if (merged.target == world && !merged.only_rebuild) {
    requests_.Resolve(merged.requests, RequestState::kDone, kNothingToChange);
    return BeginNext(now, out);
  }
  auto transition = std::make_unique<Transition>();
  transition->kind = merged.only_rebuild ? TransitionKind::kSwap : TransitionKind::kBoundary;
  transition->what = std::move(merged.what);
  transition->requests = std::move(merged.requests);
  transition->target = std::move(merged.target);
  transition->next_member = merged.next_member;
  transition->olds = world;
  for (MemberId m : transition->target) {
    if (!record_.world.SlotOf(m)) transition->joiners.push_back(m);
  }
  requests_.Resolve(transition->requests, RequestState::kRunning, transition->what);
  Begin(now, std::move(transition), out);
}

void Leader::BeginLoss(Time now, Out* out) {
  if (!peers_.Cooperate(WorldIds())) {
    requests_.FailWaiting(loss_);
    return;  // the program's calls end with errors, and the program ends
  }
  auto transition = std::make_unique<Transition>();
  transition->kind = TransitionKind::kLoss;
  transition->olds = Alive();
  transition->target = transition->olds;
  if (transition->olds.empty()) return StopJob(now, "every member of the world is lost", out);
  transition->what = peers_.lost().empty()
                         ? std::string("loss before the leader restarted")
                         : absl::StrCat("loss of member ", absl::StrJoin(peers_.lost(), ", "));
  Begin(now, std::move(transition), out);
}

void Leader::Begin(Time now, std::unique_ptr<Transition> transition, Out* out) {
  transition->attempt = ++attempts_;
  transition->epoch = std::max(record_.reserved_epoch, record_.world.epoch) + 1;
  if (const WorldRecord* const unknown = write_.record()) {
    transition->epoch = std::max(transition->epoch, unknown->reserved_epoch + 1);
  }
  transition->secret = EpochKey(options_.job_key, transition->epoch);
  transition->from = record_.world;
  transition->began = now;
  transition->phase_began = now;
  transition_ = std::move(transition);
  Tell(now, NoteKind::kProgress, absl::StrCat("begins: ", transition_->what), out);
  const bool swap = transition_->kind == TransitionKind::kSwap;
  Enter(now, Phase::kReserve, swap ? options_.build : options_.join, out);
  TryReserve(now, out);
}

// ---- drains with a deadline ---------------------------------------------------------------------

std::vector<uint64_t> Leader::DueDrains() const {
  const bool running = transition_ && transition_->BeforeCommit();
  std::vector<uint64_t> due =
      requests_.WithDeadline(running ? transition_->requests : std::vector<uint64_t>());
  if (due.empty()) return due;
  const std::vector<MemberId> alive = Alive();
  std::erase_if(due, [&](uint64_t id) { return requests_.NotGone(id, alive).empty(); });
  return due;
}

void Leader::PostponeDrains(Time now) {
  for (const uint64_t id : DueDrains()) {
    requests_.SetGoneBy(id, std::max(requests_.gone_by(id), now + options_.silence));
  }
}

void Leader::CheckDrains(Time now, Out* out) {
  for (const uint64_t id : DueDrains()) {
    if (now < requests_.gone_by(id)) continue;
    // A stalled host costs no member, and the recovery from a loss may need the member's copies.
    if (peers_.AllSilent(now) || broken_ || idle_phase_ == Phase::kRecovering) {
      requests_.SetGoneBy(id, now + options_.silence);
      continue;
    }
    requests_.SetGoneBy(id, std::nullopt);
    LoseAndEnd(now, requests_.NotGone(id, Alive()),
               absl::StrCat("it did not leave in time: ", Describe(requests_.change(id))), out);
  }
}

}  // namespace rewire::elastic
