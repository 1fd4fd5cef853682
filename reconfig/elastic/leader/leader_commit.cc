// The leader from the first proposal to the compare-and-swap, and the deadlines of all phases. See
// leader.h. Owned by the leader's thread.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/restore_choice.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {
namespace {

std::string Missing(const std::vector<MemberId>& of, const std::set<MemberId>& there) {
  std::vector<MemberId> missing;
  for (MemberId m : of) {
    if (!there.contains(m)) missing.push_back(m);
  }
  return absl::StrCat("member ", absl::StrJoin(missing, ", "));
}

// Names the limit that a deadline comes from.
std::string Limit(const char* setting, Duration value) {
  return absl::StrCat(" (", setting, "=", static_cast<int64_t>(ToMilliseconds(value)), ")");
}

}  // namespace

// ---- rounds of proposals ------------------------------------------------------------------------

void Leader::ProposeRound(Time now, Out* out) {
  Transition& t = *transition_;
  std::vector<Cut> cuts;
  const bool swap = t.kind == TransitionKind::kSwap;
  const bool cooperate = std::all_of(t.olds.begin(), t.olds.end(),
                                     [&](MemberId m) { return peers_.Know(m).cooperates; });
  if (swap) {
    for (const CommunicatorId& id : t.to_mint) {
      cuts.push_back(
          t.rounds.ChooseCut(id, positions_, !cooperate, options_.cut_margin, write_.took()));
    }
  }
  // In a swap, communicators that have not passed their cuts before this update switch there.
  if (!swap || cooperate) {
    uint64_t furthest = 0;
    for (MemberId m : t.olds) furthest = std::max(furthest, peers_.Know(m).counts.updates);
    cuts.push_back(
        t.rounds.ChooseStep(furthest, swap ? std::optional(write_.took()) : std::nullopt));
  }
  t.rounds.Propose(now, std::move(cuts));
  for (MemberId m : t.olds) {
    Propose propose{t.epoch, t.rounds.round(), t.rounds.cuts()};
    if (swap && options_.planted_bug != PlantedBug::kAllCutsToAll) {
      std::erase_if(propose.cuts, [&](const Cut& cut) {
        return cut.communicator != kUpdateBoundary && !registry_.Has(m, cut.communicator);
      });
    }
    Send(m, propose, out);
  }
  Enter(now, Phase::kPropose, options_.decision, out);
}

void Leader::OnPledge(Time now, MemberId from, const Pledge& m, Out* out) {
  Transition& t = *transition_;
  t.rounds.Record(now, m.counters);
  if (m.round == kLookRound) return;
  if (t.phase != Phase::kPropose || m.round != t.rounds.round() || !t.IsOld(from)) {
    ++dropped_;
    return;
  }
  t.rounds.Answered(now);
  if (!m.ok && options_.planted_bug != PlantedBug::kLostPledge) {
    if (t.kind != TransitionKind::kSwap) {
      return RefuseRound(now, std::nullopt, absl::StrCat("member ", from, " refuses: ", m.reason),
                         out);
    }
    return RefuseRound(now, m.communicator,
                       absl::StrCat("member ", from, " refuses the cut of communicator ",
                                    ShortName(m.communicator), ": ", m.reason),
                       out);
  }
  t.rounds.Pledge(from);
  if (!Transition::All(t.rounds.pledged(), t.olds)) return;
  if (t.kind == TransitionKind::kSwap) return CommitNow(now, out);
  SendAll(t.Everyone(), Decide{t.epoch, t.rounds.round(), true}, out);
  Enter(now, Phase::kArmed, options_.arm, out);
}

void Leader::RefuseRound(Time now, const std::optional<CommunicatorId>& communicator,
                         const std::string& why, Out* out) {
  Transition& t = *transition_;
  SendAll(t.olds, Decide{t.epoch, t.rounds.round(), false}, out);
  ++refused_rounds_;
  const uint32_t ended = t.rounds.Refuse(communicator, t.to_mint);
  if (ended >= options_.max_rounds) {
    return AbortPlanned(now, absl::StrCat("no common cut in ", ended, " rounds: ", why), false,
                        out);
  }
  Tell(now, NoteKind::kProgress, absl::StrCat("another round: ", why), out);
  ProposeRound(now, out);
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
  if (!t.Planned()) return TryRestore(now, out);
  if (t.phase == Phase::kPrepare) return AfterPrepared(now, out);
  if (t.phase != Phase::kArmed) return;
  if (first_old) t.deadline = now + options_.boundary;
  if (!Transition::All(t.AtTheBoundary(), t.olds)) return;
  Enter(now, Phase::kAtBoundary, options_.boundary, out);
  if (Transition::All(t.verified, t.Everyone()) ||
      options_.planted_bug == PlantedBug::kCommitBeforeVerified) {
    CommitNow(now, out);
  }
}

void Leader::TryRestore(Time now, Out* out) {
  Transition& t = *transition_;
  if (t.restoring || !Transition::All(t.AtTheBoundary(), t.olds)) return;
  const absl::StatusOr<RestoreChoice> choice = ChooseVersion(t.from, t.at_boundary);
  if (!choice.ok()) return StopJob(now, std::string(choice.status().message()), out);
  // A member overwrites its state in place, which another loss may still need while others build.
  const bool overwrites =
      std::any_of(t.at_boundary.begin(), t.at_boundary.end(), [&](const auto& report) {
        return report.second.live_whole && report.second.live_version != choice->version;
      });
  if (overwrites && t.phase == Phase::kPrepare) return;
  t.restoring = true;
  SendAll(t.olds, Restore{t.epoch, choice->version, choice->sources}, out);
  if (t.phase == Phase::kArmed) Enter(now, Phase::kAtBoundary, options_.boundary, out);
  Tell(now, NoteKind::kProgress, absl::StrCat("the state is restored to version ", choice->version),
       out);
}

void Leader::OnVerified(Time now, MemberId from, const Verified& m, Out* out) {
  Transition& t = *transition_;
  const bool expected =
      t.restoring ? t.BeforeCommit() : t.phase == Phase::kArmed || t.phase == Phase::kAtBoundary;
  if (!expected || t.kind == TransitionKind::kSwap) {
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
  record.cuts = t.kind == TransitionKind::kSwap ? t.rounds.cuts() : std::vector<Cut>{};
  record.secret = t.secret;
  // No way back exists: at the deadline the leader only reports that the store has not answered.
  Enter(now, Phase::kCommitting, options_.boundary, out);
  Write(now, record, out);
}

// ---- deadlines ----------------------------------------------------------------------------------

void Leader::OnPhaseDeadline(Time now, Out* out) {
  Transition& t = *transition_;
  if (t.CostsMembers() && peers_.AllSilent(now)) {
    t.deadline = now + options_.silence;  // a stalled host costs no member and no job
    return;
  }
  t.deadline.reset();
  // The first member that arrives shortens the deadline (OnAtBoundary).
  const std::string arrival = t.at_boundary.size() == t.joiners.size()
                                  ? Limit("REWIRE_ARM_MS", options_.arm)
                                  : Limit("REWIRE_BOUNDARY_MS", options_.boundary);
  std::string why;
  switch (t.phase) {
    case Phase::kReserve:
      why = absl::StrCat("not ready in time: ", std::string(ReadyToPrepare().message()),
                         t.kind == TransitionKind::kSwap ? Limit("REWIRE_BUILD_MS", options_.build)
                                                         : Limit("limit_ms", options_.join));
      if (!t.Planned()) return StopJob(now, absl::StrCat(t.what, ": ", why), out);
      break;
    case Phase::kPrepare:
      why = Transition::All(t.prepared, t.Everyone())
                ? absl::StrCat("not in its first update in time: ",
                               Missing(t.joiners, t.AtTheBoundary()))
                : absl::StrCat("not prepared in time: ", Missing(t.Everyone(), t.prepared));
      if (const std::string ids = t.groups.Missing(); !ids.empty()) why += ": " + ids;
      why += Limit("REWIRE_BUILD_MS", options_.build);
      break;
    case Phase::kPropose:
      return RefuseRound(now, std::nullopt,
                         absl::StrCat("no answer from ", Missing(t.olds, t.rounds.pledged()),
                                      Limit("REWIRE_DECISION_MS", options_.decision)),
                         out);
    case Phase::kArmed:
      if (!t.Planned()) {
        std::vector<MemberId> missing;
        for (MemberId m : t.olds) {
          if (!t.at_boundary.contains(m)) missing.push_back(m);
        }
        return Lose(now, missing,
                    absl::StrCat("it did not reach the update boundary in time", arrival), out);
      }
      why = absl::StrCat("not at the update boundary in time: ", Missing(t.olds, t.AtTheBoundary()),
                         arrival);
      break;
    case Phase::kAtBoundary:
      why = absl::StrCat("not verified in time: ", Missing(t.Everyone(), t.verified),
                         Limit("REWIRE_BOUNDARY_MS", options_.boundary));
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
          if (!t.entered.contains(m) && !peers_.Know(m).finished) missing.push_back(m);
        }
        return Lose(now, missing,
                    absl::StrCat("it did not acknowledge the decided swap in time",
                                 Limit("limit_ms", options_.enter)),
                    out);
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
