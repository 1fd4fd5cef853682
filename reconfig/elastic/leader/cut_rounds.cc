// Chooses cuts and counts refusals; see cut_rounds.h. Owned by the leader's thread.
#include "reconfig/elastic/leader/cut_rounds.h"

#include <utility>

namespace rewire::elastic {
namespace {

// The number of operations between the warm operation of a new generation and the cut.
constexpr uint64_t kWarmAhead = 4;

// The least number of updates between the last preparation and the boundary. PREPARE's remaining
// work (such as freeing memory) ends during these updates, before the state is streamed.
constexpr uint64_t kUpdatesAhead = 2;

// How often an idle communicator may refuse to switch at its next operation before its cut gets a
// margin. A communicator refuses while its program is inside a call.
constexpr uint32_t kIdleTries = 2;

}  // namespace

void CutRounds::Record(Time now, const std::vector<CommunicatorCounter>& counters) {
  for (const CommunicatorCounter& counter : counters) {
    paces_[counter.communicator].Record(now, counter.issued);
  }
}

Pace CutRounds::PaceOf(const CommunicatorId& communicator) const {
  const auto seen = paces_.find(communicator);
  return seen != paces_.end() ? seen->second : Pace();
}

Cut CutRounds::ChooseCut(const CommunicatorId& communicator, const Positions& positions,
                         bool at_next, uint64_t least, Duration commit) const {
  const Pace pace = PaceOf(communicator);
  const auto refused = refusals_.find(communicator);
  const uint32_t refusals = refused != refusals_.end() ? refused->second : 0;
  if (at_next && pace.still() && refusals < kIdleTries &&
      !positions.CarriesPointToPoint(communicator)) {
    return {communicator, pace.issued(), pace.issued()};
  }
  // The time of the proposal and its answers, of the compare-and-swap, and of the decision.
  const Duration decision = 2 * round_trip_ + commit;
  uint64_t warm =
      pace.issued() + (pace.Margin(least, decision) << std::min<uint32_t>(refusals, 20));
  for (const PendingSwap& swap : positions.PendingOf(communicator)) {
    // With the same cut, the new generation replaces the pending generation.
    if (warm <= swap.warm) return {communicator, swap.warm, swap.cut};
    warm = std::max(warm, swap.cut);
  }
  return {communicator, warm, warm + kWarmAhead};
}

Cut CutRounds::ChooseStep(uint64_t furthest, std::optional<Duration> commit) const {
  // The margin is twice the number of updates until all members have the decision, and at least
  // kUpdatesAhead. Each refused round doubles the margin.
  const Pace pace = PaceOf(kUpdateBoundary);
  const uint64_t doubled = uint64_t{1} << std::min<uint32_t>(round_, 20);
  const Duration time = commit ? 2 * round_trip_ + *commit + kDescheduled : round_trip_;
  const uint64_t step =
      std::max(pace.issued(), furthest) + std::max(kUpdatesAhead, 2 * pace.During(time)) * doubled;
  return {kUpdateBoundary, step, step};
}

void CutRounds::Propose(Time now, std::vector<Cut> cuts) {
  cuts_ = std::move(cuts);
  pledged_.clear();
  proposed_at_ = now;
}

uint32_t CutRounds::Refuse(const std::optional<CommunicatorId>& communicator,
                           const std::set<CommunicatorId>& all) {
  if (communicator) {
    ++refusals_[*communicator];
  } else {
    for (const CommunicatorId& id : all) ++refusals_[id];
  }
  return ++round_;
}

}  // namespace rewire::elastic
