// The faults of a simulated run, and the conditions that must hold at its end. See simulation.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/simulation.h"

namespace rewire::sim {

void Simulation::PlanFaults() {
  const uint64_t requests = 2 + random_.Below(6);
  for (uint64_t i = 0; i < requests; ++i) {
    After(random_.Between(milliseconds(500), seconds(14)), [this] { OneRequest(); });
  }
  // One run in eight has no faults of its own: requests alone must also work.
  const uint64_t faults = random_.OneIn(8) ? 0 : 1 + random_.Below(5);
  for (uint64_t i = 0; i < faults; ++i) {
    After(random_.Between(milliseconds(300), seconds(14)), [this] { OneFault(); });
  }
  const uint64_t more = options_.plain ? 0 : more_random_.Below(4);
  for (uint64_t i = 0; i < more; ++i) {
    After(more_random_.Between(milliseconds(300), seconds(14)), [this] {
      switch (more_random_.Below(4)) {
        case 0:
          return ManyDeaths();
        case 1:
          return CalledOffGrow();
        default:
          return OneStall();
      }
    });
  }
}

void Simulation::MakeCommunicator() {
  // The program's thread, which makes communicators, stands at the boundary now or soon.
  const bool soon = leader_ && leader_->phase() >= elastic::Phase::kArmed &&
                    leader_->phase() <= elastic::Phase::kCommitted;
  const std::vector<Process*> processes = Alive();
  const bool now = std::any_of(processes.begin(), processes.end(),
                               [](const Process* process) { return process->standing(); });
  if (!options_.plain && (soon || now)) {
    return After(milliseconds(100), [this] { MakeCommunicator(); });
  }
  Print("a communicator is made");
  communicators_.push_back({0x3333333300000000 + (communicators_.size() << 32), 3});
  for (Process* process : Alive()) {
    After(milliseconds(random_.Below(40)), [this, c = communicators_.back(), id = process->id()] {
      if (Process* p = Find(id)) p->CreateCommunicator(c);
    });
  }
}

void Simulation::OneRequest() {
  if (!leader_) return;
  if (random_.OneIn(6)) {
    After(milliseconds(random_.Below(600)), [this] { MakeCommunicator(); });
  }
  elastic::ChangeRequest request;
  request.reason = "simulated";
  const std::vector<MemberId> ids = [this] {
    std::vector<MemberId> out;
    for (const WorldMember& m : leader_->record().world.members) out.push_back(m.member);
    return out;
  }();
  if (ids.empty()) return;
  const MemberId someone = ids[random_.Below(ids.size())];
  switch (partitioned_ ? 5 : random_.Below(6)) {
    case 0:
    case 1:
      request.kind = elastic::RequestKind::kResize;
      request.size = 1 + static_cast<uint32_t>(random_.OneIn(6) ? 0 : 1 + random_.Below(5));
      break;
    case 2:
      request.kind = elastic::RequestKind::kDrain;
      request.members = {someone};
      if (random_.OneIn(2)) request.within = kDrainWithin;
      break;
    case 3:
      request.kind = elastic::RequestKind::kReplace;
      request.members = {someone};
      break;
    case 4:
      if (Process* process = Find(someone)) process->Reclaim(kDrainWithin);
      return;
    default:
      request.kind = elastic::RequestKind::kRebuild;
      break;
  }
  Ask(request);
}

void Simulation::Ask(const elastic::ChangeRequest& request) {
  RunLeader([this, request](auto* out) {
    const absl::StatusOr<uint64_t> id = leader_->OnRequest(now(), request, out);
    for (const MemberId m : request.members) {
      if (Process* process = Find(m); process != nullptr && id.ok()) {
        process->has_deadline_ |= request.within.has_value();
      }
      if (id.ok() && request.within) Drained(m);
    }
    Print(absl::StrCat("REQUEST: ", elastic::Describe(request), ": ",
                       id.ok() ? "accepted" : std::string(id.status().message())));
  });
}

void Simulation::OneFault() {
  const std::vector<Process*> alive = Alive();
  if (alive.empty()) return;
  Process* victim = alive[random_.Below(alive.size())];
  // A death ends a partitioned job, so such a job gets only the other faults.
  switch (partitioned_ ? 4 + random_.Below(5) : random_.Below(9)) {
    case 0:
    case 1:
      if (alive.size() < 2) return;
      return Kill(victim);
    case 2: {
      const Duration duration = random_.OneIn(2) ? milliseconds(random_.Below(600))
                                                 : milliseconds(900 + random_.Below(2000));
      Print(absl::StrCat("FAULT: process ", victim->id(), " is frozen for ",
                         ToMilliseconds(duration), " ms"));
      victim->was_cut_off_ = true;
      return victim->Freeze(duration);
    }
    case 3:
      if (victim->connection_ == 0) return;
      Print(absl::StrCat("FAULT: the connection of process ", victim->id(), " is cut"));
      victim->was_cut_off_ = true;
      return Break(victim->connection_, random_.OneIn(2), true);
    case 4:
      return CrashLeader(random_.Between(milliseconds(5), seconds(1)));
    case 5:
      Print("FAULT: the leader will crash soon");
      crash_after_actions_ = random_.Below(120);
      return;
    case 6:
      Print("FAULT: the leader will crash while it commits");
      crash_at_commit_ = true;
      return;
    case 7:
      return MakeCommunicator();
    default:
      // The network does not notice the fault; the agent loses the other end first.
      if (victim->connection_ == 0) return;
      Print(absl::StrCat("FAULT: process ", victim->id(), " reconnects"));
      victim->was_cut_off_ = true;
      const int old = victim->connection_;
      connections_[old].open = false;
      victim->connection_ = 0;
      victim->Disconnected();
      After(milliseconds(random_.Below(30)), [this, id = victim->id(), old] {
        Process* process = Find(id);
        if (process == nullptr) return;
        (void)old;
        Connect(process);
      });
      return;
  }
}

// Computed from the processes themselves: whether some shard of the stored world exists nowhere.
bool Simulation::StateIsLost() const {
  if (!stored_) return false;
  const auto& members = stored_->world.members;
  if (!sharded_) return ReplicaIsLost();
  for (uint64_t version = 0; version <= ledger_.highest_version(); ++version) {
    bool all = true;
    for (size_t slot = 0; slot < members.size() && all; ++slot) {
      bool found = false;
      const auto has = [&](const std::vector<uint64_t>& v) {
        return std::find(v.begin(), v.end(), version) != v.end();
      };
      const auto reachable = [&](MemberId id) -> Process* {
        Process* process = Find(id);
        // A process that the leader counts as lost cannot be used, even if it is alive.
        return process == nullptr || process->was_cut_off_ ? nullptr : process;
      };
      if (Process* owner = reachable(members[slot].member)) {
        const elastic::BoundaryInfo info = owner->Info();
        found = (info.live_whole && info.live_version == version) || has(info.own_snapshots);
      }
      if (Process* next = reachable(members[(slot + 1) % members.size()].member);
          next != nullptr && members.size() > 1) {
        found = found || has(next->Info().buddy_snapshots);
      }
      all = found;
    }
    if (all) return false;
  }
  return true;
}

bool Simulation::MustSurvive() const {
  // The first updates of a world make the first copies.
  constexpr uint64_t kFirstUpdates = 3;
  if (!stored_ || !sharded_) return false;
  size_t lost = 0;
  for (const WorldMember& m : stored_->world.members) {
    const Process* process = Find(m.member);
    if (process == nullptr || process->was_cut_off_ || process->has_deadline_) {
      ++lost;
    } else if (process->UpdatesInWorld() < kFirstUpdates) {
      return false;
    }
  }
  return lost <= 1;
}

// Returns whether no member has a whole replica; used if nothing is sharded.
bool Simulation::ReplicaIsLost() const {
  std::vector<elastic::BoundaryInfo> infos;
  for (const WorldMember& m : stored_->world.members) {
    const Process* process = Find(m.member);
    if (process != nullptr && !process->was_cut_off_) infos.push_back(process->Info());
  }
  return std::none_of(infos.begin(), infos.end(), [](const auto& i) { return i.live_whole; });
}

void Simulation::Check() {
  if (!leader_) return ledger_.Violation("the leader did not come back");
  if (job_stopped_ || !stored_) return;
  if (stored_->world.epoch == 0 && kills_ > 0) return;  // a process died before there was a world
  if (!leader_->steady()) {
    if (Alive().empty()) return;
    return ledger_.Violation(absl::StrCat(
        "still ", std::string(elastic::PhaseName(leader_->phase())), " long after the last fault"));
  }
  if (!(leader_->record() == *stored_))
    ledger_.Violation("the leader's record is not the stored one");
  const auto check_members = [this](const char* when) {
    for (Process* process : Alive()) {
      if (!stored_->world.SlotOf(process->id())) {
        ledger_.Violation(
            absl::StrCat("process ", process->id(), " is alive ", when, " but in no world"));
      } else if (process->member().epoch() != stored_->world.epoch) {
        ledger_.Violation(absl::StrCat("member ", process->id(), " is in epoch ",
                                       process->member().epoch(), " ", when, ", the world in ",
                                       stored_->world.epoch));
      }
    }
    for (const WorldMember& m : stored_->world.members) {
      if (Find(m.member) == nullptr) {
        ledger_.Violation(absl::StrCat("member ", m.member, " of the world is dead ", when));
      }
    }
  };
  check_members("at rest");
  // A generation that no member uses any more is destroyed, whatever the changes' outcomes.
  const Time retired_by = now() + seconds(20);
  const auto holds_too_many = [this] {
    const std::vector<Process*> alive = Alive();
    return std::any_of(alive.begin(), alive.end(),
                       [](const Process* process) { return process->HoldsTooMany(); });
  };
  while (holds_too_many() && queue_.RunOne(retired_by)) {
  }
  if (holds_too_many()) ledger_.Violation("old generations are kept long after the last change");
  // Training continues to its end.
  finish_at_ = ledger_.highest_version() + 3;
  const Time end = now() + seconds(20);
  while (!leader_->done() && queue_.RunOne(end)) {
  }
  if (!leader_->done()) ledger_.Violation("the program did not come to its end after the faults");
}

}  // namespace rewire::sim
