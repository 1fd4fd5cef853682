// Faults that hit many processes at once: stalls of the host, simultaneous deaths, and events that
// cancel a change during its preparation. See simulation.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/simulation.h"

namespace rewire::sim {

void Simulation::Kill(Process* victim) {
  Print(absl::StrCat("FAULT: process ", victim->id(), " is killed"));
  ++kills_;
  victim->Kill();
  ProcessEnded(victim);
}

void Simulation::StallLeader(Duration duration) {
  if (!leader_ || now() < leader_stalled_until_) return;
  leader_stalled_until_ = now() + duration;
  At(leader_stalled_until_ + nanoseconds(1), [this, duration, life = leader_life_] {
    if (life != leader_life_) return;
    phase_stalled_ += duration;
    leader_stalled_ += duration;
    // The leader reads the inputs that arrived during the stall before it judges any member.
    while (!stalled_inputs_.empty() && life == leader_life_) {
      const auto input = std::move(stalled_inputs_.front());
      stalled_inputs_.pop_front();
      RunLeader(input);
    }
    RunLeader([this](auto* out) { leader_->OnTick(now(), out); });
  });
}

// The whole host, all members or the agent stall and continue nearly together: no member is dead.
void Simulation::OneStall() {
  const Duration duration = milliseconds(200 + more_random_.Below(4000));
  const bool leader = more_random_.Below(3) != 0;
  const bool members = !leader || more_random_.Below(4) != 0;
  Print(absl::StrCat("FAULT: ", leader ? "the agent " : "", members ? "all members " : "",
                     "stand still for ", ToMilliseconds(duration), " ms"));
  if (leader) StallLeader(duration + milliseconds(more_random_.Below(100)));
  if (!members) return;
  for (Process* process : Alive()) {
    process->Freeze(duration + milliseconds(more_random_.Below(200)));
  }
}

// Two or more members die at once. If every slot has a replica, any survivor is sufficient.
void Simulation::ManyDeaths() {
  if (!leader_) return;
  if (!deadly_) return OneStall();
  const auto& members = leader_->record().world.members;
  if (members.size() < 2) return;
  const size_t first = more_random_.Below(members.size());
  const size_t distance = 1 + more_random_.Below(members.size() - 1);
  const size_t most =
      std::min<size_t>(members.size() - 1, sharded_ ? 1 : 1 + more_random_.Below(3));
  std::vector<MemberId> victims;
  for (size_t i = 0; i < most; ++i) {
    victims.push_back(members[(first + i * distance) % members.size()].member);
  }
  for (MemberId id : victims) {
    After(milliseconds(more_random_.Below(3) * more_random_.Below(60)), [this, id] {
      if (Process* victim = Find(id); victim != nullptr && Alive().size() > 1) Kill(victim);
    });
  }
}

// A grow, and a fault while its processes start and prepare. A partitioned job refuses the grow.
void Simulation::CalledOffGrow() {
  if (!leader_) return;
  const auto members = leader_->record().world.members;
  if (members.size() < 2 || members.size() >= leader_options_.max_members) return;
  elastic::ChangeRequest grow;
  grow.kind = elastic::RequestKind::kResize;
  grow.size = static_cast<uint32_t>(members.size()) + 1;
  grow.reason = "simulated";
  Ask(grow);
  const MemberId someone = members[more_random_.Below(members.size())].member;
  const uint64_t what = more_random_.Below(3);
  After(milliseconds(more_random_.Below(500)), [this, someone, what] {
    if (!leader_) return;
    if (what == 0) {
      elastic::ChangeRequest drain;
      drain.kind = elastic::RequestKind::kDrain;
      drain.members = {someone};
      drain.within = kDrainWithin;
      return Ask(drain);
    }
    if (!deadly_) return;
    // The newest process is the joiner.
    const std::vector<Process*> alive = Alive();
    Process* victim = what == 1 ? Find(someone) : alive.empty() ? nullptr : alive.back();
    if (victim != nullptr && alive.size() > 1) Kill(victim);
  });
}

}  // namespace rewire::sim
