// The leader from RESERVE to the last Prepared. See leader.h; docs/protocol.md has the diagrams.
// Owned by the leader's thread.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/elastic/leader/leader.h"
#include "reconfig/elastic/leader/transition.h"

namespace rewire::elastic {
namespace {

constexpr uint32_t kFailedBuilds = 2;  // failed builds of one swap before the swap is aborted

}  // namespace

void Leader::AfterReserve(Time now, Out* out) {
  std::vector<MemberId> missing;
  for (MemberId m : transition_->joiners) {
    if (peers_.Find(m) == nullptr) missing.push_back(m);
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
    return absl::UnavailableError(
        write_.error().empty() ? "the store has not written the epoch"
                               : absl::StrCat("the store does not answer: ", write_.error()));
  }
  if (t.not_before) {
    return absl::UnavailableError(
        t.Planned() ? "the program makes or destroys one communicator after the other"
                    : "the last attempt failed");
  }
  for (MemberId m : t.olds) {
    if (!peers_.Told(m))
      return absl::UnavailableError(absl::StrCat("member ", m, " is not connected"));
    // All members must know before the build which generations they destroy first.
    if (t.Planned() && peers_.Find(m)->positions_due > 0) {
      return absl::UnavailableError(
          absl::StrCat("member ", m, " has not reported its generations"));
    }
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
    if (!peers_.Told(m))
      return absl::UnavailableError(absl::StrCat("new member ", m, " is not connected"));
    if (!peers_.Find(m)->cooperates) {
      return absl::FailedPreconditionError(
          absl::StrCat("new member ", m, " does not use Rewire's C API"));
    }
    ready = registry_.JoinerReady(m, t.olds[0], t.target);
    if (!ready.ok()) return ready;
  }
  return absl::OkStatus();
}

std::string Leader::waits() const {
  const bool reserving = transition_ != nullptr && transition_->phase == Phase::kReserve;
  return reserving ? transition_->waits : "";
}

void Leader::TryPrepare(Time now, Out* out) {
  std::optional<Time>& not_before = transition_->not_before;
  if (not_before && now >= *not_before) not_before.reset();
  const absl::Status ready = ReadyToPrepare();
  if (absl::IsUnavailable(ready)) {
    if (!transition_->reserved) return;
    const std::string waits(ready.message());
    if (std::exchange(transition_->waits, waits) == waits) return;
    requests_.Resolve(transition_->requests, RequestState::kRunning,
                      absl::StrCat(transition_->what, ": waits: ", waits));
    return Tell(now, NoteKind::kProgress, absl::StrCat("waits: ", waits), out);
  }
  if (!ready.ok()) {
    const std::string why(ready.message());
    if (transition_->Planned()) return AbortPlanned(now, why, false, out);
    return StopJob(now,
                   absl::StrCat(transition_->what, ": ", why,
                                " (start the job again from its last durable step)"),
                   out);
  }
  Transition& t = *transition_;
  t.to = World{t.epoch, {}};
  for (MemberId m : t.target) {
    const Peer& peer = peers_.Know(m);
    t.to.members.push_back({m, peer.incarnation, peer.data_address});
  }
  std::map<MemberId, std::vector<CommunicatorId>> mint;
  const bool swap = t.kind == TransitionKind::kSwap;
  // The members mint the ids of their groups without a request, because they know the layouts.
  if (!swap) {
    t.groups.Expect(registry_.Groups(t.olds[0]), static_cast<uint32_t>(t.target.size()));
  }
  for (const auto& [id, seats] : registry_.communicators()) {
    for (const auto& [member, seat] : seats) {
      if (!swap && !seat.group.empty()) continue;
      const bool first =
          swap ? !seat.held.empty() && seat.held.front() == 0 : member == t.target[0];
      if (!first || !(t.IsOld(member) || t.IsJoiner(member))) continue;
      t.to_mint.insert(id);
      mint[member].push_back(id);
    }
  }
  if (swap && t.to_mint.empty()) {
    return AbortPlanned(now, "nothing to rebuild: no member has a communicator", false, out);
  }
  if (!std::exchange(t.waits, "").empty()) {
    requests_.Resolve(t.requests, RequestState::kRunning, t.what);
  }
  const auto ms = std::chrono::duration_cast<milliseconds>(options_.build).count();
  for (MemberId m : t.Everyone()) {
    Send(m, Prepare{t.epoch, t.kind, t.from, t.to, t.secret, static_cast<uint32_t>(ms), mint[m]},
         out);
  }
  Enter(now, Phase::kPrepare, options_.build, out);
  TryBuild(now, out);
}

void Leader::OnMinted(Time now, MemberId from, const Minted& m, Out* out) {
  Transition& t = *transition_;
  const std::string group = registry_.GroupOf(from, m.communicator);
  const bool of_group = t.kind != TransitionKind::kSwap && !group.empty();
  if (t.phase != Phase::kPrepare || (!of_group && !t.to_mint.contains(m.communicator))) {
    ++dropped_;
    return;
  }
  if (!of_group) {
    t.minted[m.communicator] = m.unique_id;
  } else if (const std::string wrong = t.groups.Add(group, m); !wrong.empty()) {
    const std::string why = absl::StrCat("member ", from, ": ", wrong);
    return t.Planned() ? AbortPlanned(now, why, false, out) : RetryLoss(now, why, out);
  }
  TryBuild(now, out);
}

void Leader::TryBuild(Time now, Out* out) {
  Transition& t = *transition_;
  if (t.build_sent || t.minted.size() < t.to_mint.size() || !t.groups.Missing().empty()) return;
  for (MemberId m : t.joiners) {
    const absl::Status right = registry_.JoinerInGroups(m, *t.to.SlotOf(m), t.groups);
    if (!right.ok()) return AbortPlanned(now, std::string(right.message()), false, out);
  }
  t.build_sent = true;
  for (MemberId m : t.Everyone()) {
    Build build{t.epoch, {}};
    const std::optional<uint32_t> slot = t.to.SlotOf(m);
    // Every member builds in the order of ids, so two builds never wait for each other.
    for (const auto& [id, unique_id] : t.minted) {
      const Registry::Seats& seats = registry_.communicators().at(id);
      if (t.kind == TransitionKind::kSwap) {
        const auto seat = seats.find(m);
        if (seat == seats.end()) continue;
        build.builds.push_back({id, seat->second.ranks, seat->second.held, unique_id});
      } else if (slot) {
        build.builds.push_back({id, static_cast<uint32_t>(t.target.size()), {*slot}, unique_id});
      }
    }
    for (const auto& [name, groups] : t.groups.groups()) {
      for (const MintedGroup& group : groups) {
        const std::optional<uint32_t> place = slot ? PlaceIn(group, *slot) : std::nullopt;
        if (!place) continue;
        build.builds.push_back({*registry_.OfGroup(m, name),
                                static_cast<uint32_t>(group.slots.size()),
                                {*place},
                                group.unique_id,
                                true});
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
  } else if (t.prepared.insert(from).second) {
    t.plans[m.plan_hash].push_back(from);
    if (Transition::All(t.prepared, t.Everyone())) wrong = t.OtherPlans();
  }
  if (!wrong.empty()) {
    if (t.kind == TransitionKind::kSwap && m.again && t.failed_builds < kFailedBuilds) {
      ++t.failed_builds;
      return Restart(now, wrong, out);
    }
    if (t.Planned()) return AbortPlanned(now, wrong, false, out);
    return RetryLoss(now, wrong, out);
  }
  t.rounds.Record(now, m.counters);
  AfterPrepared(now, out);
}

std::string Transition::OtherPlans() const {
  if (kind == TransitionKind::kSwap || plans.size() < 2) return "";
  const auto most = std::max_element(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  const auto equal = std::count_if(plans.begin(), plans.end(), [&](const auto& plan) {
    return plan.second.size() == most->second.size();
  });
  std::vector<MemberId> others;
  for (const auto& plan : plans) {
    if (plan.first == most->first && equal == 1) continue;
    others.insert(others.end(), plan.second.begin(), plan.second.end());
  }
  std::sort(others.begin(), others.end());
  const std::string ids = absl::StrJoin(others, ", ");
  // Without a majority nobody is the one that is wrong.
  if (equal > 1) return absl::StrCat("the plans of members ", ids, " are not the same");
  return absl::StrCat("the plan of member ", ids, " differs from the others'");
}

void Leader::AfterPrepared(Time now, Out* out) {
  Transition& t = *transition_;
  if (t.phase != Phase::kPrepare || !Transition::All(t.prepared, t.Everyone())) return;
  if (t.Planned()) {
    // A joiner's program must be in its first update, or others would wait at the boundary.
    if (!Transition::All(t.AtTheBoundary(), t.joiners)) return;
    return ProposeRound(now, out);
  }
  if (!t.restoring) {
    Enter(now, Phase::kArmed, options_.arm, out);
    return TryRestore(now, out);
  }
  Enter(now, Phase::kAtBoundary, options_.boundary, out);
  if (Transition::All(t.verified, t.olds)) CommitNow(now, out);
}

}  // namespace rewire::elastic
