// The member's handling of program events and participant answers; see member.h. Owned by the
// member's thread.
#include <algorithm>
#include <set>
#include <utility>

#include "reconfig/elastic/member/member.h"

namespace rewire::elastic {

void Member::OnCommunicatorCreated(Time, const CommunicatorCreated& created, Out* out) {
  const auto [known, first] = communicators_.try_emplace(created.communicator, created);
  CommunicatorCreated& all = known->second;
  if (!first) {
    std::set<uint32_t> held(all.held.begin(), all.held.end());
    held.insert(created.held.begin(), created.held.end());
    all.held.assign(held.begin(), held.end());
    if (created.pinned) {
      all.pinned = true;
      all.reason = created.reason;
    }
  }
  Send(all, out);
}

CommunicatorId Member::Present(const CommunicatorId& communicator) const {
  const auto renamed = renamed_.find(communicator);
  return renamed == renamed_.end() ? communicator : renamed->second;
}

void Member::OnCommunicatorPinned(Time, const CommunicatorId& communicator,
                                  const std::string& reason, Out* out) {
  const auto known = communicators_.find(Present(communicator));
  if (known == communicators_.end() || known->second.reason == reason) return;
  known->second.pinned = !reason.empty();
  known->second.reason = reason;
  Send(CommunicatorPinned{known->first, reason}, out);
}

void Member::OnCommunicatorDestroyed(Time, const CommunicatorId& communicator, uint32_t rank,
                                     Out* out) {
  const auto known = communicators_.find(Present(communicator));
  if (known == communicators_.end()) return;
  std::vector<uint32_t>& held = known->second.held;
  // After a change of members the program may not know the only rank's new number yet.
  if (held.size() > 1) {
    if (std::erase(held, rank) > 0) Send(known->second, out);
    return;
  }
  const CommunicatorId present = known->first;
  communicators_.erase(known);
  Send(CommunicatorDestroyed{present}, out);
}

void Member::OnReclaim(Time, Duration within, Out* out) {
  const auto ms =
      std::clamp<int64_t>(std::chrono::duration_cast<milliseconds>(within).count(), 0, UINT32_MAX);
  reclaim_ = ReclaimNotice{static_cast<uint32_t>(ms)};
  if (!welcomed_) return;
  Send(*reclaim_, out);
  reclaim_.reset();
}

void Member::OnFinished(Time, Out* out) {
  if (stopped_ || finished_) return;
  if (work_) Drop("the program has finished", out);
  finished_ = true;
  Send(Finished{}, out);
}

void Member::OnMinted(Time, Epoch epoch, const CommunicatorId& communicator,
                      std::vector<uint32_t> slots, const absl::StatusOr<UniqueIdBytes>& id,
                      Out* out) {
  if (!Current(epoch)) return;
  if (id.ok()) {
    Send(Minted{epoch, communicator, *id, std::move(slots)}, out);
  } else {
    Send(Prepared{epoch, false, std::string(id.status().message()), 0, {}}, out);
  }
}

void Member::OnPlanned(Time now, Epoch epoch, const absl::StatusOr<uint64_t>& plan_hash, Out* out) {
  if (!Current(epoch)) return;
  if (!plan_hash.ok()) {
    return Send(Prepared{epoch, false, std::string(plan_hash.status().message()), 0, {}}, out);
  }
  work_->plan_hash = *plan_hash;
  TryPrepared(now, out);
}

void Member::OnBuilt(Time now, Epoch epoch, const absl::Status& status,
                     std::vector<CommunicatorCounter> counters, Out* out) {
  if (!Current(epoch)) return;
  if (!status.ok()) {
    // A peer that has given up its build breaks this build. Another attempt may succeed.
    const bool again = absl::IsInternal(status) || absl::IsAborted(status);
    return Send(Prepared{epoch, false, std::string(status.message()), 0, {}, again}, out);
  }
  work_->built = true;
  work_->counters = std::move(counters);
  TryPrepared(now, out);
}

void Member::TryPrepared(Time now, Out* out) {
  if (work_->prepared || !work_->built || !work_->plan_hash) return;
  work_->prepared = true;
  Send(Prepared{work_->prepare.epoch, true, "", *work_->plan_hash, work_->counters}, out);
  TryBoundary(now, out);
}

void Member::OnPledged(Time, Epoch epoch, uint32_t round, const std::optional<CutRefusal>& refusal,
                       std::vector<CommunicatorCounter> counters, Out* out) {
  if (!Current(epoch)) return;
  if (!work_->proposed || work_->proposed->round != round) {
    ++dropped_;
    return;
  }
  work_->pledged = !refusal && round != kLookRound;
  const CutRefusal why = refusal.value_or(CutRefusal{});
  Send(Pledge{epoch, round, !refusal, why.communicator, why.reason, std::move(counters)}, out);
}

void Member::OnBoundary(Time now, const BoundaryInfo& info, Out* out) {
  if (stopped_ || finished_) return;
  // The reason for the stop may have been cancelled, and other members need this program.
  if (!StandsFor(info.live_version)) return Release(ResumeKind::kContinue, out);
  if (!standing_) standing_since_ = clock_.Read(now);
  standing_ = true;
  boundary_ = info;
  if (work_) work_->described = true;
  TryBoundary(now, out);
}

bool Member::StandsFor(uint64_t version) const {
  if (joining_ || broken_) return true;
  return work_ && work_->prepare.kind == TransitionKind::kBoundary && work_->proposed &&
         version >= work_->proposed->cuts[0].cut;
}

// Does the work that waits for the program to stand at the boundary.
void Member::TryBoundary(Time, Out* out) {
  if (!standing_ || !work_) return;
  MemberWork& work = *work_;
  const bool loss = work.prepare.kind == TransitionKind::kLoss;
  if (work.prepare.kind == TransitionKind::kSwap) return;
  const bool report = loss ? work.described : joining_ ? work.prepared : work.armed;
  if (report && !work.reported) {
    work.reported = true;
    Send(AtBoundary{work.prepare.epoch, boundary_.live_version, boundary_.live_whole,
                    boundary_.own_snapshots, boundary_.buddy_snapshots, boundary_.needs},
         out);
  }
  if (!loss && work.armed && !work.finishing) {
    work.finishing = true;
    out->push_back(FinishStream{work.prepare.epoch});
  }
}

void Member::OnStreamed(Time now, Epoch epoch, const absl::Status& status, uint64_t bytes_in,
                        uint64_t bytes_out, Out* out) {
  if (!Current(epoch)) return;
  if (!status.ok()) {
    return Send(Verified{epoch, false, std::string(status.message()), bytes_in, bytes_out}, out);
  }
  if (!work_->finishing || work_->verified) {
    ++dropped_;
    return;
  }
  // Without a connection the message reaches no leader, and then no commit is possible.
  work_->verified = connected_;
  work_->verified_at = clock_.Read(now);
  Send(Verified{epoch, true, "", bytes_in, bytes_out}, out);
}

void Member::OnEntered(Time, Epoch epoch, uint64_t pause_ns, Out* out) {
  if (work_ && work_->armed && epoch == work_->prepare.epoch) {
    work_->entered = true;
    return;
  }
  if (epoch != this->epoch() || finished_) {
    ++dropped_;
    return;
  }
  entered_epoch_ = epoch;
  entered_ = Entered{epoch, pause_ns};
  Send(entered_, out);
}

void Member::OnPositions(Time, const std::vector<Position>& positions, Out* out) {
  if (stopped_ || finished_) return;
  std::map<CommunicatorId, Position> now;
  for (const Position& position : positions) {
    if (!position.open && position.pending.empty() && position.old.empty()) continue;
    now[position.communicator] = position;
  }
  for (const auto& [id, position] : now) {
    const auto before = positions_.find(id);
    if (before == positions_.end() || before->second != position) Send(position, out);
  }
  for (const auto& [id, position] : positions_) {
    if (!now.contains(id)) Send(Position{id, false, 0, false, 0, {}, {}}, out);
  }
  positions_ = std::move(now);
}

}  // namespace rewire::elastic
