// The leader from PREPARE to the compare-and-swap. See leader.h; docs/protocol.md has the diagrams.
// Owned by the leader's thread.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/restore_choice.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {
namespace {

constexpr uint32_t kFailedBuilds = 2;  // failed builds of one swap before the swap is aborted

std::string Missing(const std::vector<MemberId>& of, const std::set<MemberId>& there) {
  std::vector<MemberId> missing;
  for (MemberId m : of) {
    if (!there.contains(m)) missing.push_back(m);
  }
  return absl::StrCat("member ", absl::StrJoin(missing, ", "));
}

std::set<MemberId> Keys(const std::map<MemberId, AtBoundary>& reports) {
  std::set<MemberId> keys;
  for (const auto& [member, report] : reports) keys.insert(member);
  return keys;
}

}  // namespace

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

// ---- PREPARE ------------------------------------------------------------------------------------

void Leader::AfterReserve(Time now, Out* out) {
  std::vector<MemberId> missing;
  for (MemberId m : transition_->joiners) {
    if (!peers_.contains(m)) missing.push_back(m);
  }
  if (!missing.empty()) {
    Spawn spawn{missing, static_cast<uint32_t>(transition_->target.size()), {}};
    for (MemberId m : transition_->target) {
      if (transition_->IsOld(m)) spawn.stay.push_back(m);
    }
    out->push_back(std::move(spawn));
  }
  TryPrepare(now, out);
}

void Leader::OnSpawned(Time now, std::span<const MemberId> members, Out* out) {
  now = Awake(now);
  Tell(now, NoteKind::kMember, absl::StrCat("started: member ", absl::StrJoin(members, ", ")), out);
}

void Leader::OnSpawnFailed(Time now, std::span<const MemberId> members, const std::string& reason,
                           Out* out) {
  now = Awake(now);
  if (!transition_ || !transition_->BeforeCommit()) return;
  for (MemberId m : members) {
    if (transition_->IsJoiner(m)) {
      return AbortPlanned(now, absl::StrCat("new member ", m, " did not start: ", reason), false,
                          out);
    }
  }
}

// Returns kUnavailable for "not yet" and kFailedPrecondition for "never".
absl::Status Leader::ReadyToPrepare() const {
  const Transition& t = *transition_;
  if (!t.reserved) {
    return absl::UnavailableError(store_error_.empty()
                                      ? "the store has not written the epoch"
                                      : absl::StrCat("the store does not answer: ", store_error_));
  }
  for (MemberId m : t.olds) {
    if (!ToldOf(m)) return absl::UnavailableError(absl::StrCat("member ", m, " is not connected"));
  }
  const std::vector<MemberId> world = WorldIds();
  absl::Status ready;
  switch (t.kind) {
    case TransitionKind::kSwap:
      return registry_.ReadyForSwap(world);
    case TransitionKind::kLoss:
      return registry_.ReadyForLoss(world, t.olds);
    case TransitionKind::kBoundary:
      ready = registry_.ReadyForBoundary(world);
      break;
  }
  if (!ready.ok()) return ready;
  for (MemberId m : t.joiners) {
    if (!ToldOf(m))
      return absl::UnavailableError(absl::StrCat("new member ", m, " is not connected"));
    if (!peers_.at(m).cooperates) {
      return absl::FailedPreconditionError(
          absl::StrCat("new member ", m, " does not use Rewire's C API"));
    }
    ready = registry_.JoinerReady(m, t.olds[0], t.target);
    if (!ready.ok()) return ready;
  }
  return absl::OkStatus();
}

void Leader::TryPrepare(Time now, Out* out) {
  const absl::Status ready = ReadyToPrepare();
  if (absl::IsUnavailable(ready)) {
    if (!transition_->reserved) return;
    const std::string waits(ready.message());
    if (std::exchange(transition_->waits, waits) == waits) return;
    Resolve(transition_->requests, RequestState::kRunning,
            absl::StrCat(transition_->what, ": waits: ", waits));
    return Tell(now, NoteKind::kProgress, absl::StrCat("waits: ", waits), out);
  }
  if (!ready.ok()) {
    const std::string why(ready.message());
    if (transition_->Planned()) return AbortPlanned(now, why, false, out);
    return StopJob(now, why, out);
  }
  Transition& t = *transition_;
  t.to = World{t.epoch, {}};
  for (MemberId m : t.target) {
    t.to.members.push_back({m, peers_[m].incarnation, peers_[m].data_address});
  }
  std::map<MemberId, std::vector<CommunicatorId>> mint;
  for (const auto& [id, seats] : registry_.communicators()) {
    for (const auto& [member, seat] : seats) {
      const bool first = t.kind == TransitionKind::kSwap ? seat.rank == 0 : member == t.target[0];
      if (!first || !(t.IsOld(member) || t.IsJoiner(member))) continue;
      t.to_mint.insert(id);
      mint[member].push_back(id);
    }
  }
  if (t.kind == TransitionKind::kSwap && t.to_mint.empty()) {
    return AbortPlanned(now, "nothing to rebuild: no member has a communicator", false, out);
  }
  const auto ms = std::chrono::duration_cast<milliseconds>(options_.build).count();
  for (MemberId m : t.Everyone()) {
    Send(m, Prepare{t.epoch, t.kind, t.from, t.to, t.secret, static_cast<uint32_t>(ms), mint[m]},
         out);
  }
  Enter(now, Phase::kPrepare, options_.build, out);
  TryBuild(now, out);
}

void Leader::OnMinted(Time now, const Minted& m, Out* out) {
  if (transition_->phase != Phase::kPrepare || !transition_->to_mint.contains(m.communicator)) {
    ++dropped_;
    return;
  }
  transition_->minted[m.communicator] = m.unique_id;
  TryBuild(now, out);
}

void Leader::TryBuild(Time now, Out* out) {
  (void)now;
  Transition& t = *transition_;
  if (t.build_sent || t.minted.size() < t.to_mint.size()) return;
  t.build_sent = true;
  for (MemberId m : t.Everyone()) {
    Build build{t.epoch, {}};
    // Every member builds in the order of ids, so two builds never wait for each other.
    for (const auto& [id, unique_id] : t.minted) {
      const Registry::Seats& seats = registry_.communicators().at(id);
      if (t.kind == TransitionKind::kSwap) {
        const auto seat = seats.find(m);
        if (seat == seats.end()) continue;
        build.builds.push_back({id, seat->second.ranks, seat->second.rank, unique_id});
      } else if (const auto slot = t.to.SlotOf(m)) {
        build.builds.push_back({id, static_cast<uint32_t>(t.target.size()), *slot, unique_id});
      }
    }
    Send(m, build, out);
  }
  // Requests a first look at the counters. The second look, when all is built, gives the rate.
  if (t.kind == TransitionKind::kSwap) SendAll(t.olds, Propose{t.epoch, kLookRound, {}}, out);
}

void Leader::OnPrepared(Time now, MemberId from, const Prepared& m, Out* out) {
  Transition& t = *transition_;
  if (t.phase != Phase::kPrepare) {
    ++dropped_;
    return;
  }
  std::string wrong;
  if (!m.ok) {
    wrong = absl::StrCat("member ", from, " cannot prepare: ", m.error);
  } else if (t.kind != TransitionKind::kSwap && t.plan_hash.value_or(m.plan_hash) != m.plan_hash) {
    wrong = absl::StrCat("the plan of member ", from, " differs from the others'");
  }
  if (!wrong.empty()) {
    if (t.kind == TransitionKind::kSwap && m.again && t.failed_builds < kFailedBuilds) {
      ++t.failed_builds;
      return Restart(now, wrong, out);
    }
    if (t.Planned()) return AbortPlanned(now, wrong, false, out);
    return RetryLoss(now, wrong, out);
  }
  t.plan_hash = m.plan_hash;
  t.prepared.insert(from);
  Count(now, m.counters);
  AfterPrepared(now, out);
}

void Leader::AfterPrepared(Time now, Out* out) {
  Transition& t = *transition_;
  if (t.phase != Phase::kPrepare || !Transition::All(t.prepared, t.Everyone())) return;
  const std::set<MemberId> there = Keys(t.at_boundary);
  if (t.Planned()) {
    // A joiner's program must be in its first update, or others would wait at the boundary.
    if (!Transition::All(there, t.joiners)) return;
    return ProposeRound(now, out);
  }
  Enter(now, Phase::kArmed, options_.arm, out);
  TryRestore(now, out);
}

// ---- the boundary -------------------------------------------------------------------------------

void Leader::OnAtBoundary(Time now, MemberId from, const AtBoundary& m, Out* out) {
  Transition& t = *transition_;
  if (!t.BeforeCommit()) {
    ++dropped_;
    return;
  }
  const bool first_old = t.IsOld(from) && t.at_boundary.size() == t.joiners.size();
  t.at_boundary[from] = m;
  if (t.phase == Phase::kPrepare) return AfterPrepared(now, out);
  if (t.phase != Phase::kArmed) return;
  if (!t.Planned()) return TryRestore(now, out);
  if (first_old) t.deadline = now + options_.boundary;
  if (!Transition::All(Keys(t.at_boundary), t.olds)) return;
  Enter(now, Phase::kAtBoundary, options_.boundary, out);
  if (Transition::All(t.verified, t.Everyone()) ||
      options_.planted_bug == PlantedBug::kCommitBeforeVerified) {
    CommitNow(now, out);
  }
}

void Leader::TryRestore(Time now, Out* out) {
  Transition& t = *transition_;
  if (!Transition::All(Keys(t.at_boundary), t.olds)) return;
  const absl::StatusOr<RestoreChoice> choice = ChooseVersion(t.from, t.at_boundary);
  if (!choice.ok()) return StopJob(now, std::string(choice.status().message()), out);
  SendAll(t.olds, Restore{t.epoch, choice->version, choice->sources}, out);
  Enter(now, Phase::kAtBoundary, options_.boundary, out);
  Tell(now, NoteKind::kProgress, absl::StrCat("the state is restored to version ", choice->version),
       out);
}

void Leader::OnVerified(Time now, MemberId from, const Verified& m, Out* out) {
  Transition& t = *transition_;
  if ((t.phase != Phase::kArmed && t.phase != Phase::kAtBoundary) ||
      t.kind == TransitionKind::kSwap) {
    ++dropped_;
    return;
  }
  if (!m.ok) {
    const std::string why =
        absl::StrCat("member ", from, ": the check of the state failed: ", m.error);
    if (t.Planned()) return AbortPlanned(now, why, false, out);
    return RetryLoss(now, why, out);
  }
  if (t.verified.insert(from).second) t.bytes_moved += m.bytes_in;
  if (t.phase == Phase::kAtBoundary && Transition::All(t.verified, t.Everyone())) {
    CommitNow(now, out);
  }
}

void Leader::CommitNow(Time now, Out* out) {
  Transition& t = *transition_;
  WorldRecord record = record_;
  record.world = t.to;
  record.cuts = t.kind == TransitionKind::kSwap ? t.cuts : std::vector<Cut>{};
  record.secret = t.secret;
  // No way back exists: at the deadline the leader only reports that the store has not answered.
  Enter(now, Phase::kCommitting, options_.boundary, out);
  Write(now, record, out);
}

// ---- deadlines ----------------------------------------------------------------------------------

void Leader::OnPhaseDeadline(Time now, Out* out) {
  Transition& t = *transition_;
  if (t.CostsMembers() && silence_.OfAll(now)) {
    t.deadline = now + options_.silence;  // a stalled host costs no member and no job
    return;
  }
  t.deadline.reset();
  std::string why;
  switch (t.phase) {
    case Phase::kReserve:
      why = absl::StrCat("not ready in time: ", std::string(ReadyToPrepare().message()));
      if (!t.Planned()) return StopJob(now, why, out);
      break;
    case Phase::kPrepare:
      why = Transition::All(t.prepared, t.Everyone())
                ? absl::StrCat("not in its first update in time: ",
                               Missing(t.joiners, Keys(t.at_boundary)))
                : absl::StrCat("not prepared in time: ", Missing(t.Everyone(), t.prepared));
      break;
    case Phase::kPropose:
      return RefuseRound(now, std::nullopt,
                         absl::StrCat("no answer from ", Missing(t.olds, t.pledged)), out);
    case Phase::kArmed:
      if (!t.Planned()) {
        std::vector<MemberId> missing;
        for (MemberId m : t.olds) {
          if (!t.at_boundary.contains(m)) missing.push_back(m);
        }
        return Lose(now, missing, "it did not reach the update boundary", out);
      }
      why = absl::StrCat("not at the update boundary in time: ",
                         Missing(t.olds, Keys(t.at_boundary)));
      break;
    case Phase::kAtBoundary:
      why = absl::StrCat("not verified in time: ", Missing(t.Everyone(), t.verified));
      break;
    case Phase::kCommitting:
      t.deadline = now + options_.boundary;
      return Tell(
          now, NoteKind::kWarning,
          absl::StrCat("the store has not answered the commit of epoch ", t.epoch, " for ",
                       ToMilliseconds(now - t.phase_began), " ms: the commit is not decided yet"),
          out);
    case Phase::kCommitted:
      if (t.kind == TransitionKind::kSwap) {
        // A member answers on its own thread, so a member without an answer is not running.
        std::vector<MemberId> missing;
        for (MemberId m : t.target) {
          if (!t.entered.contains(m) && !peers_[m].finished) missing.push_back(m);
        }
        return Lose(now, missing, "it did not acknowledge the decided swap in time", out);
      }
      Tell(now, NoteKind::kWarning,
           absl::StrCat("committed, but not in the new epoch yet: ", Missing(t.target, t.entered)),
           out);
      return EndTransition(now, out);
    case Phase::kRetiring:
      Tell(now, NoteKind::kWarning,
           absl::StrCat("old generations are not destroyed yet on ",
                        Missing(t.target, Retired(t.target))),
           out);
      return EndTransition(now, out);
    default:
      return;
  }
  if (t.Planned()) return AbortPlanned(now, why, false, out);
  RetryLoss(now, why, out);
}

}  // namespace rewire::elastic
