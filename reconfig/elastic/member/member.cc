// The member's handling of messages and of time; see member.h. Owned by the member's thread.
#include "reconfig/elastic/member/member.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "reconfig/world/identity.h"

namespace rewire::elastic {

// ---- the connection -----------------------------------------------------------------------------

void Member::OnConnected(Time now, Out* out) {
  if (stopped_ || finished_) return;
  now = clock_.Read(now);
  connected_ = true;
  next_heartbeat_ = now + options_.heartbeat;
  Hello hello;
  hello.member = options_.member;
  hello.incarnation = options_.incarnation;
  hello.pid = options_.pid;
  hello.cooperates = options_.cooperates;
  hello.data_address = options_.data_address;
  hello.broken = broken_;
  hello.epoch = epoch();
  hello.positions = static_cast<uint32_t>(positions_.size());
  hello.retiring = retiring_;
  Send(hello, out);
  for (const auto& [id, created] : communicators_) Send(created, out);
  for (const auto& [id, position] : positions_) Send(position, out);
  if (work_) work_->from_before = true;
}

void Member::OnDisconnected(Time now, Out*) {
  if (!connected_) return;
  connected_ = false;
  welcomed_ = false;
  disconnected_since_ = clock_.Read(now);
}

// One overload for each message, so that a message without one does not compile.
struct Member::Incoming {
  void operator()(const Welcome& m) const { member.OnWelcome(now, m, out); }
  void operator()(const Forming& m) const { out->push_back(AwaitWorld{m.missing}); }
  void operator()(const Refused& m) const { member.Stop(m.reason, out); }
  void operator()(const rewire::elastic::Stop& m) const { member.Stop(m.reason, out); }
  void operator()(const Prepare& m) const { member.OnPrepare(now, m, out); }
  void operator()(const Build& m) const {
    if (!member.Current(m.epoch) || member.work_->build) return;
    for (const CommunicatorBuild& build : m.builds) {
      if (!build.grouped || build.unique_id.size() >= NCCL_UNIQUE_ID_BYTES) continue;
      return member.Send(Prepared{m.epoch, false, "the unique id of a group is cut short", 0, {}},
                         out);
    }
    member.work_->build = m;
    out->push_back(BuildGenerations{m.epoch, m.builds, member.work_->build_by});
  }
  void operator()(const Propose& m) const {
    if (member.Current(m.epoch)) member.OnPropose(m, out);
  }
  void operator()(const Decide& m) const {
    if (member.Current(m.epoch)) member.OnDecide(now, m, out);
  }
  void operator()(const Restore& m) const {
    if (member.Current(m.epoch)) member.OnRestore(m, out);
  }
  void operator()(const Commit& m) const { member.OnCommit(now, m, out); }
  void operator()(const Abort& m) const {
    if (member.Current(m.epoch)) member.Drop(m.reason, out);
  }
  void operator()(const Lost& m) const { member.OnLost(now, m, out); }
  void operator()(const Retire& m) const {
    member.retiring_ = m.generations;
    out->push_back(RetireGenerations{m.generations});
  }
  template <OfAMember M>
  void operator()(const M& /*m*/) const {
    ++member.dropped_;
  }

  Member& member;
  const Time now;
  Out* const out;
};

void Member::OnMessage(Time now, const Message& message, Out* out) {
  if (stopped_ || finished_) {
    ++dropped_;
    return;
  }
  now = clock_.Read(now);
  std::visit(Incoming{*this, now, out}, message);
}

void Member::OnWelcome(Time, const Welcome& m, Out* out) {
  welcomed_ = true;
  names_key_ = m.names_key;
  if (m.joining) {
    joining_ = true;
    if (work_ && work_->from_before) Drop("the leader restarted", out);
    if (!entered_world_) {
      entered_world_ = true;
      out->push_back(EnterWorld{m.world, true, names_key_, Key{}, m.leaving});
    }
  }
  if (reclaim_) {
    Send(*reclaim_, out);
    reclaim_.reset();
  }
}

// ---- PREPARE ------------------------------------------------------------------------------------

void Member::OnPrepare(Time now, const Prepare& m, Out* out) {
  if (m.epoch <= std::max(highest_, epoch())) {
    ++dropped_;
    return;
  }
  if (work_) Drop("another transition was begun", out);
  highest_ = m.epoch;
  std::string wrong;
  if (!joining_ && m.from.epoch != epoch()) {
    wrong = absl::StrCat("it is in epoch ", epoch(), ", not ", m.from.epoch);
  } else if (broken_ && m.kind != TransitionKind::kLoss) {
    wrong = "its communicators are aborted";
  }
  if (!wrong.empty()) return Send(Prepared{m.epoch, false, wrong, 0, {}}, out);
  work_.emplace();
  work_->prepare = m;
  work_->build_by = clock_.OwnersTime(now) + milliseconds(m.deadline_ms);
  if (!m.mint.empty()) out->push_back(MintIds{m.epoch, m.mint});
  if (m.kind == TransitionKind::kSwap) {
    work_->plan_hash = 0;
  } else {
    MakePlan plan{m.epoch, m.kind, m.from, m.to, m.secret};
    for (const auto& [id, created] : communicators_) {
      if (!created.group.empty()) plan.groups[created.group] = id;
    }
    out->push_back(std::move(plan));
  }
  if (m.kind == TransitionKind::kLoss) out->push_back(DescribeBoundary{});
}

void Member::OnPropose(const Propose& m, Out* out) {
  if (joining_ || work_->armed) {
    ++dropped_;
    return;
  }
  work_->proposed = m;
  work_->pledged = false;
  if (work_->prepare.kind == TransitionKind::kSwap) {
    out->push_back(PledgeCuts{m.epoch, m.round, m.cuts});
  } else if (work_->prepare.kind == TransitionKind::kBoundary && m.cuts.size() == 1 &&
             m.cuts[0].communicator == kUpdateBoundary) {
    out->push_back(PledgeBoundary{m.epoch, m.round, m.cuts[0].cut});
  } else {
    work_->proposed.reset();
    ++dropped_;
  }
}

void Member::OnDecide(Time now, const Decide& m, Out* out) {
  const bool swap = work_->prepare.kind == TransitionKind::kSwap;
  if (!m.go) {
    if (!work_->proposed || work_->proposed->round != m.round) {
      ++dropped_;
      return;
    }
    work_->proposed.reset();
    work_->pledged = false;
    if (swap) {
      out->push_back(DecideCuts{m.epoch, false});
    } else {
      out->push_back(ReleaseBoundary{m.epoch});
      if (standing_) Release(ResumeKind::kContinue, out);
    }
    return;
  }
  const bool mine = work_->pledged && work_->proposed && work_->proposed->round == m.round;
  if (!joining_ && !mine) {
    return Stop("the leader committed a cut that this member has not pledged", out);
  }
  if (work_->armed) return;
  work_->armed = true;
  if (swap) {
    out->push_back(DecideCuts{m.epoch, true});
    return;
  }
  out->push_back(StartStream{m.epoch, joining_ ? 0 : work_->proposed->cuts[0].cut});
  TryBoundary(now, out);
}

void Member::OnRestore(const Restore& m, Out* out) {
  if (work_->prepare.kind != TransitionKind::kLoss || work_->finishing || !work_->reported) {
    ++dropped_;
    return;
  }
  work_->finishing = true;
  out->push_back(RestoreFrom{m.epoch, m.version, m.sources});
}

// ---- COMMITTED and ABORTED ----------------------------------------------------------------------

void Member::OnCommit(Time now, const Commit& m, Out* out) {
  const WorldRecord& record = m.record;
  const Epoch committed = record.world.epoch;
  if (work_ && committed == work_->prepare.epoch) return TakeCommitted(now, record, out);
  if (committed < epoch()) {
    ++dropped_;
    return;
  }
  if (committed > epoch()) {
    // Only a new process takes a world that the process did not help to make.
    if (entered_world_ || !record.world.SlotOf(options_.member)) {
      return Stop(absl::StrCat("epoch ", committed, " was committed without this member"), out);
    }
    record_ = record;
    entered_world_ = true;
    out->push_back(EnterWorld{record.world, false, names_key_, record.secret});
    return;
  }
  // After a reconnection the stored world is still this member's, so the transition did not happen.
  if (work_ && work_->from_before) Drop("the leader restarted before the commit", out);
  if (entered_epoch_ == committed) Send(entered_, out);
}

void Member::TakeCommitted(Time now, const WorldRecord& record, Out* out) {
  const TransitionKind kind = work_->prepare.kind;
  if (kind == TransitionKind::kSwap) {
    if (!work_->pledged) {
      return Stop("a cut was committed that this member has not pledged", out);
    }
    if (!work_->armed) out->push_back(DecideCuts{record.world.epoch, true});
  } else if (!work_->verified) {
    return Stop("a world was committed that this member has not verified", out);
  }
  const MemberWork work = *std::exchange(work_, std::nullopt);
  record_ = record;
  const std::optional<uint32_t> slot = record.world.SlotOf(options_.member);
  out->push_back(Adopt{record, kind, slot});
  if (work.entered) OnEntered(now, record.world.epoch, 0, out);
  if (kind == TransitionKind::kSwap) return;
  broken_ = false;
  lost_.clear();
  joining_ = false;
  if (!slot) {
    finished_ = true;
    return Release(ResumeKind::kLeave, out);
  }
  MoveCommunicators(work, *slot, out);
  Release(kind == TransitionKind::kLoss ? ResumeKind::kRepeat : ResumeKind::kWorldChanged, out);
}

void Member::MoveCommunicators(const MemberWork& work, uint32_t slot, Out* out) {
  for (auto& [id, created] : communicators_) {
    if (!created.group.empty()) continue;
    created.ranks = static_cast<uint32_t>(record_.world.members.size());
    created.held = {slot};
  }
  std::vector<CommunicatorCreated> moved;
  renamed_.clear();
  if (!work.build) return;
  for (const CommunicatorBuild& build : work.build->builds) {
    const auto before = communicators_.find(build.communicator);
    if (!build.grouped || before == communicators_.end()) continue;
    CommunicatorCreated created = before->second;
    communicators_.erase(before);
    created.communicator = IdentityOfUniqueId(build.unique_id.data());
    renamed_[build.communicator] = created.communicator;
    created.ranks = build.ranks;
    created.held = build.held;
    created.creation = 0;
    // The present leader has this member's reports from before the commit.
    if (work.from_before) Send(CommunicatorDestroyed{build.communicator}, out);
    moved.push_back(std::move(created));
  }
  for (CommunicatorCreated& created : moved) {
    if (work.from_before) Send(created, out);
    communicators_[created.communicator] = std::move(created);
  }
}

void Member::OnLost(Time now, const Lost& m, Out* out) {
  if (m.epoch != epoch() || joining_) {
    ++dropped_;
    return;
  }
  bool news = !broken_;
  broken_ = true;  // before Drop: the member cannot continue in the old world
  if (work_) Drop("members were lost", out);
  std::string who;
  auto living = static_cast<uint32_t>(record_.world.members.size());
  for (MemberId lost : m.members) {
    if (record_.world.SlotOf(lost)) --living;
    if (!lost_.insert(lost).second) continue;
    news = true;
    absl::StrAppend(&who, who.empty() ? "" : ", ", lost);
  }
  if (!news) return;
  broken_since_ = now;
  // After an earlier loss too: the program may have made communicators of the survivors since.
  out->push_back(AbortCurrent{who.empty() ? "members were lost before the leader restarted"
                                          : absl::StrCat("lost: member ", who),
                              living});
}

void Member::Drop(const std::string& reason, Out* out) {
  const MemberWork work = *std::exchange(work_, std::nullopt);
  if (work.proposed) {
    if (work.prepare.kind == TransitionKind::kSwap) {
      out->push_back(DecideCuts{work.prepare.epoch, false});
    } else {
      out->push_back(ReleaseBoundary{work.prepare.epoch});
    }
  }
  out->push_back(AbandonEpoch{work.prepare.epoch, reason});
  if (standing_ && !broken_ && !joining_) Release(ResumeKind::kContinue, out);
}

void Member::Release(ResumeKind kind, Out* out) {
  standing_ = false;
  out->push_back(Resume{kind});
}

void Member::Stop(const std::string& reason, Out* out) {
  stopped_ = true;
  out->push_back(StopProcess{reason});
}

void Member::Send(Message message, Out* out) {
  if (connected_) out->push_back(SendMessage{std::move(message)});
}

bool Member::Current(Epoch epoch) {
  if (work_ &&
      (epoch == work_->prepare.epoch || options_.planted_bug == PlantedBug::kStaleEpochAccepted)) {
    return true;
  }
  ++dropped_;
  return false;
}

// ---- time ---------------------------------------------------------------------------------------

std::optional<Time> Member::GiveUpAt() const {
  if (stopped_ || finished_) return std::nullopt;
  if (joining_) {
    if (connected_) return std::nullopt;  // the leader has the deadlines
    return disconnected_since_ + options_.undecided;
  }
  if (!standing_) return std::nullopt;
  if (work_ && work_->verified) return work_->verified_at + options_.undecided;
  if (broken_) return std::max(broken_since_, standing_since_) + options_.recover;
  return standing_since_ + options_.boundary;
}

void Member::GiveUp(Time, Out* out) {
  if (joining_) return Stop("no contact with the leader while joining", out);
  if (work_ && work_->verified) {
    return Stop("the leader did not answer in time whether the new world was committed", out);
  }
  if (broken_) return Stop("no new world was made in time after a loss", out);
  const std::string reason = "not decided in time: this member stays in the old world";
  if (!work_) return Release(ResumeKind::kContinue, out);
  Send(Verified{work_->prepare.epoch, false, reason, 0, 0}, out);
  Drop(reason, out);
}

void Member::OnTick(Time now, const Heartbeat& counts, Out* out) {
  if (stopped_ || finished_) return;
  now = clock_.Read(now);
  if (connected_ && next_heartbeat_ && now >= *next_heartbeat_) {
    next_heartbeat_ = now + options_.heartbeat;
    Send(counts, out);
  }
  if (const auto at = GiveUpAt(); at && now >= *at) GiveUp(now, out);
}

std::optional<Time> Member::NextDeadline() const {
  if (stopped_ || finished_) return std::nullopt;
  std::optional<Time> next;
  const auto at = [&](Time owners) { next = next ? std::min(*next, owners) : owners; };
  if (const auto give_up = GiveUpAt()) {
    at(clock_.OwnersTime(*give_up));
    at(clock_.NextReading());
  }
  if (connected_ && next_heartbeat_) at(clock_.OwnersTime(*next_heartbeat_));
  return next;
}

}  // namespace rewire::elastic
