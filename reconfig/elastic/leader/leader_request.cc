// The leader's queue of requests, and the next transition. See leader.h. Owned by the leader's
// thread.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {
namespace {

constexpr uint32_t kRequestAttempts = 5;

}  // namespace

// Checks the request against the world after all current and queued changes.
absl::Status Leader::CheckRequest(const ChangeRequest& request) const {
  if (idle_phase_ == Phase::kStopped) return absl::FailedPreconditionError("the job has ended");
  if (record_.world.epoch == 0) {
    return absl::FailedPreconditionError("the world is not formed yet: not all members attached");
  }
  const std::vector<MemberId> world = WorldIds();
  for (MemberId id : world) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end() || peer->second.lost) continue;
    if (peer->second.finished) {
      return absl::FailedPreconditionError(
          absl::StrCat("the job is ending: member ", id, " has finished"));
    }
    if (request.kind != RequestKind::kRebuild && !peer->second.cooperates) {
      return absl::FailedPreconditionError(
          absl::StrCat("member ", id,
                       " runs a program that does not use Rewire's C API: its world "
                       "can be rebuilt, not changed"));
    }
  }
  if (broken_ && !Cooperating()) {
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
  if (!transition_) std::erase_if(members, [&](MemberId m) { return lost_.contains(m); });
  MemberId next = std::max(record_.next_member, transition_ ? transition_->next_member : 0);
  for (uint64_t id : queue_) {
    absl::StatusOr<std::vector<MemberId>> after =
        ApplyRequest(requests_.at(id).change, members, options_.max_members, &next);
    if (after.ok()) members = *std::move(after);
  }
  return ApplyRequest(request, members, options_.max_members, &next).status();
}

absl::StatusOr<uint64_t> Leader::OnRequest(Time now, const ChangeRequest& request, Out* out) {
  return Enqueue(Awake(now), request, out);
}

absl::StatusOr<uint64_t> Leader::Enqueue(Time now, const ChangeRequest& request, Out* out) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  const uint64_t id = next_request_++;
  Request& entry = requests_[id];
  entry.change = request;
  entry.world_size = static_cast<uint32_t>(record_.world.members.size());
  entry.status = {RequestState::kWaiting, Describe(request)};
  queue_.push_back(id);
  if (request.within) {
    entry.gone_by = now + *request.within;
    // Warns at once of a deadline that cannot be met. The change still begins as early as possible.
    const bool behind = transition_ != nullptr;
    const Duration need = usual_.value_or(Duration{});
    if (need > *request.within) {
      Tell(now, NoteKind::kWarning,
           absl::StrCat(Describe(request),
                        ": the deadline cannot be met: earlier changes of this kind took ",
                        std::chrono::duration_cast<milliseconds>(need).count(),
                        " ms (if a member leaves earlier, its state is taken from the copies)"),
           out);
    }
    if (behind && transition_->Planned() && transition_->phase < Phase::kPropose) {
      AbortPlanned(now, "a change with a deadline goes first", true, out);
      return id;
    }
  }
  BeginNext(now, out);
  return id;
}

void Leader::Resolve(const std::vector<uint64_t>& ids, RequestState state,
                     const std::string& text) {
  for (uint64_t id : ids) requests_[id].status = {state, text};
}

void Leader::BeginNext(Time now, Out* out) {
  if (transition_ || idle_phase_ != Phase::kSteady) return;
  if (NobodyStays()) return StopReclaimed(now, out);
  if (broken_) return BeginLoss(now, out);
  if (!queue_.empty()) BeginPlanned(now, out);
}

void Leader::BeginPlanned(Time now, Out* out) {
  std::vector<uint64_t> chosen;
  const bool urgent = std::any_of(queue_.begin(), queue_.end(), [&](uint64_t id) {
    return requests_[id].change.within.has_value();
  });
  for (uint64_t id : queue_) {
    if (!urgent || requests_[id].change.within) chosen.push_back(id);
  }
  std::erase_if(queue_, [&](uint64_t id) {
    return std::find(chosen.begin(), chosen.end(), id) != chosen.end();
  });

  auto transition = std::make_unique<Transition>();
  std::vector<MemberId> target = WorldIds();
  transition->next_member = record_.next_member;
  std::vector<std::string> what;
  const auto fail = [&](uint64_t id, const std::string& why) {
    Resolve({id}, RequestState::kFailed, why);
    Tell(now, NoteKind::kFailed, absl::StrCat(Describe(requests_[id].change), ": ", why), out);
  };
  for (uint64_t id : chosen) {
    Request& request = requests_[id];
    ChangeRequest change = request.change;
    // Members were lost since the request: a drain is fulfilled, a replacement is still due.
    const auto gone = [&](MemberId m) { return !record_.world.SlotOf(m); };
    if (change.kind == RequestKind::kDrain && std::erase_if(change.members, gone) > 0 &&
        change.members.empty()) {
      Resolve({id}, RequestState::kDone, "the members have left");
      continue;
    }
    if (change.kind == RequestKind::kReplace && gone(change.members[0])) {
      change = {RequestKind::kResize, request.world_size, {}, {}, change.reason};
    }
    if (++request.attempts > kRequestAttempts) {
      fail(id, "given up after several attempts");
      continue;
    }
    absl::StatusOr<std::vector<MemberId>> after =
        ApplyRequest(change, target, options_.max_members, &transition->next_member);
    if (!after.ok()) {
      fail(id, std::string(after.status().message()));
      continue;
    }
    target = *std::move(after);
    transition->requests.push_back(id);
    what.push_back(Describe(request.change));
  }
  if (transition->requests.empty()) return BeginNext(now, out);
  // An earlier request of the same merge may add members that a later request removes. Their ids
  // are skipped.
  target = OrderSlots(WorldIds(), target);
  transition->target = target;
  const bool only_rebuild =
      std::all_of(transition->requests.begin(), transition->requests.end(),
                  [&](uint64_t id) { return requests_[id].change.kind == RequestKind::kRebuild; });
  if (target == WorldIds() && !only_rebuild) {
    Resolve(transition->requests, RequestState::kDone, "nothing to change");
    return BeginNext(now, out);
  }
  transition->kind = only_rebuild ? TransitionKind::kSwap : TransitionKind::kBoundary;
  transition->what = absl::StrJoin(what, "; ");
  transition->olds = WorldIds();
  for (MemberId m : target) {
    if (!record_.world.SlotOf(m)) transition->joiners.push_back(m);
  }
  Resolve(transition->requests, RequestState::kRunning, transition->what);
  Begin(now, std::move(transition), out);
}

void Leader::BeginLoss(Time now, Out* out) {
  if (!Cooperating()) {
    Resolve(queue_, RequestState::kFailed, "members were lost");
    queue_.clear();
    return;  // the program's calls end with errors, and the program ends
  }
  auto transition = std::make_unique<Transition>();
  transition->kind = TransitionKind::kLoss;
  transition->olds = Alive();
  transition->target = transition->olds;
  if (transition->olds.empty()) return StopJob(now, "every member of the world is lost", out);
  transition->what = lost_.empty() ? std::string("loss before the leader restarted")
                                   : absl::StrCat("loss of ", absl::StrJoin(lost_, ", "));
  Begin(now, std::move(transition), out);
}

void Leader::Begin(Time now, std::unique_ptr<Transition> transition, Out* out) {
  transition->attempt = ++attempts_;
  transition->epoch = std::max(record_.reserved_epoch, record_.world.epoch) + 1;
  if (writing_) transition->epoch = std::max(transition->epoch, writing_->reserved_epoch + 1);
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

}  // namespace rewire::elastic
