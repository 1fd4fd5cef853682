// The leader's proposals and the members' pledges: the operation at which each communicator
// switches, or the update at which all members stop. See leader.h. Owned by the leader's thread.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {
namespace {

// The number of operations between the warm operation of a new generation and the cut.
constexpr uint64_t kWarmAhead = 4;

// The number of updates between the last preparation and the boundary. The state is streamed after
// the last of these updates, and PREPARE's remaining work (such as freeing memory) has ended.
constexpr uint64_t kUpdatesAhead = 2;

// How often an idle communicator may refuse to switch at its next operation before its cut gets a
// margin. Its program may be inside a call at that moment.
constexpr uint32_t kIdleTries = 2;

}  // namespace

void Leader::Count(Time now, const std::vector<CommunicatorCounter>& counters) {
  for (const CommunicatorCounter& counter : counters) {
    transition_->paces[counter.communicator].Saw(now, counter.issued);
  }
}

// Follows the rules in docs/protocol.md, "Pending swaps".
Cut Leader::ChooseCut(const CommunicatorId& communicator) const {
  const Transition& t = *transition_;
  const auto seen = t.paces.find(communicator);
  const Pace pace = seen != t.paces.end() ? seen->second : Pace();
  const auto refused = t.refusals.find(communicator);
  const uint32_t refusals = refused != t.refusals.end() ? refused->second : 0;
  if (pace.still() && refusals < kIdleTries && !positions_.CarriesPointToPoint(communicator)) {
    return {communicator, pace.issued(), pace.issued()};
  }
  // The time of the proposal and its answers, of the compare-and-swap, and of the decision.
  const Duration decision = 2 * t.round_trip + store_took_;
  uint64_t warm = pace.issued() +
                  (pace.Margin(options_.cut_margin, decision) << std::min<uint32_t>(refusals, 20));
  for (const PendingSwap& swap : positions_.PendingOf(communicator)) {
    // With the same cut, the new generation replaces the pending generation.
    if (warm <= swap.warm) return {communicator, swap.warm, swap.cut};
    warm = std::max(warm, swap.cut);
  }
  return {communicator, warm, warm + kWarmAhead};
}

Cut Leader::ChooseStep() {
  const Transition& t = *transition_;
  // The margin is twice the number of updates during a proposal and its answers.
  const auto seen = t.paces.find(kUpdateBoundary);
  const Pace pace = seen != t.paces.end() ? seen->second : Pace();
  uint64_t furthest = pace.issued();
  for (MemberId m : t.olds) furthest = std::max(furthest, peers_[m].counts.updates);
  const uint64_t doubled = uint64_t{1} << std::min<uint32_t>(t.round, 20);
  const uint64_t step = furthest + std::max(kUpdatesAhead, 2 * pace.During(t.round_trip)) * doubled;
  return {kUpdateBoundary, step, step};
}

void Leader::ProposeRound(Time now, Out* out) {
  Transition& t = *transition_;
  t.cuts.clear();
  t.pledged.clear();
  t.proposed_at = now;
  const bool swap = t.kind == TransitionKind::kSwap;
  if (swap) {
    for (const CommunicatorId& id : t.to_mint) t.cuts.push_back(ChooseCut(id));
  } else {
    t.cuts.push_back(ChooseStep());
  }
  for (MemberId m : t.olds) {
    Propose propose{t.epoch, t.round, t.cuts};
    if (swap && options_.planted_bug != PlantedBug::kAllCutsToAll) {
      std::erase_if(propose.cuts,
                    [&](const Cut& cut) { return !registry_.Has(m, cut.communicator); });
    }
    Send(m, propose, out);
  }
  Enter(now, Phase::kPropose, options_.decision, out);
}

void Leader::OnPledge(Time now, MemberId from, const Pledge& m, Out* out) {
  Transition& t = *transition_;
  Count(now, m.counters);
  if (m.round == kLookRound) return;
  if (t.phase != Phase::kPropose || m.round != t.round || !t.IsOld(from)) {
    ++dropped_;
    return;
  }
  t.round_trip = std::max(t.round_trip, now - t.proposed_at);
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
  t.pledged.insert(from);
  if (!Transition::All(t.pledged, t.olds)) return;
  if (t.kind == TransitionKind::kSwap) return CommitNow(now, out);
  SendAll(t.Everyone(), Decide{t.epoch, t.round, true}, out);
  Enter(now, Phase::kArmed, options_.arm, out);
}

void Leader::RefuseRound(Time now, const std::optional<CommunicatorId>& communicator,
                         const std::string& why, Out* out) {
  Transition& t = *transition_;
  SendAll(t.olds, Decide{t.epoch, t.round, false}, out);
  ++refused_rounds_;
  if (++t.round >= options_.max_rounds) {
    return AbortPlanned(now, absl::StrCat("no common cut in ", t.round, " rounds: ", why), false,
                        out);
  }
  Tell(now, NoteKind::kProgress, absl::StrCat("another round: ", why), out);
  if (communicator) {
    ++t.refusals[*communicator];
  } else {
    for (const CommunicatorId& id : t.to_mint) ++t.refusals[id];
  }
  ProposeRound(now, out);
}

}  // namespace rewire::elastic
