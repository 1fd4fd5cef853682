// The leader's side of the simulation: its lifetime, its store, its actions. See simulation.h.
#include "tests/sim/simulation.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace rewire::sim {
namespace {

// kIdle is used in a few steps only. kSends is a communicator with only sends and receives, which
// have no index; no operation of the program uses kSends.
constexpr CommunicatorId kIdle{0x4444444400000000, 4};
constexpr CommunicatorId kSends{0x5555555500000000, 5};
constexpr uint64_t kPairs = 0x6666666600000000;
constexpr char kNeighbours[] = "neighbours";

}  // namespace

Simulation::Simulation(SimulationOptions options)
    : options_(options), random_(options.seed), more_random_(options.seed ^ 0xe1a57) {
  elastic::LeaderOptions& o = leader_options_;
  const uint64_t members = 2 + random_.Below(4);
  for (MemberId m = 0; m < members; ++m) o.initial_members.push_back(m);
  o.max_members = 6;
  o.job_key.bytes[0] = static_cast<unsigned char>(random_.Next());
  o.grace = seconds(2);
  o.join = seconds(4);
  o.build = seconds(3);
  o.decision = milliseconds(300);
  o.arm = seconds(4);
  o.boundary = seconds(3);
  o.enter = seconds(4);
  o.heartbeat = milliseconds(200);
  o.silence = seconds(1);
  o.cut_margin = 1 + static_cast<uint32_t>(random_.Below(8));
  o.planted_bug = options.planted_bug;
  if (!options.plain) {
    sharded_ = more_random_.OneIn(2);
    volatile_ = more_random_.OneIn(2);
    local_updates_ = !sharded_ || more_random_.OneIn(2);
    // Two updates: if updates are local, or if a lost process still runs (docs/limits.md).
    if (sharded_) ledger_.MayLose(2);
  }
  communicators_ = {{0x1111111100000000, 1}, {0x2222222200000000, 2}, kIdle, kSends};
  partitioned_ = random_.OneIn(3) && members >= 3;
  if (!partitioned_) {
    // A choice by its own, so that a seed without groups gives the same run as before.
    if (!options.plain && SeededRandom(options.seed ^ 0x6e0).OneIn(2)) {
      groups_ = {kNeighbours, "parity"};
    }
    return;
  }
  deadly_ = more_random_.OneIn(4);
  cooperates_ = deadly_ || more_random_.OneIn(3);
  // The last pair may have only one member.
  for (uint64_t pair = 0; pair < (members + 1) / 2; ++pair) {
    communicators_.push_back({kPairs + (pair << 32), pair});
  }
}

CommunicatorId Simulation::CommunicatorFor(MemberId member, uint64_t version,
                                           uint32_t operation) const {
  if (operation == 2 && version % 13 == 5) return kIdle;
  if (operation == 3 && partitioned_) {
    return {kPairs + (uint64_t{member / 2} << 32), member / 2};
  }
  return communicators_[operation % 2];  // a communicator made later exists, but is not used
}

std::vector<uint32_t> Simulation::GroupOf(const std::string& name, uint32_t slot, size_t slots) {
  std::vector<uint32_t> group;
  for (uint32_t other = 0; other < slots; ++other) {
    if (name == kNeighbours ? other / 2 == slot / 2 : other % 2 == slot % 2) group.push_back(other);
  }
  return group;
}

std::vector<MemberId> Simulation::SpanOf(const CommunicatorId& c, MemberId member,
                                         const std::vector<WorldMember>& world) const {
  std::vector<MemberId> span;
  if (const auto name = names_.find(c); name != names_.end()) {
    const std::optional<uint32_t> own = World{0, world}.SlotOf(member);
    for (const uint32_t slot : GroupOf(name->second, own.value(), world.size())) {
      span.push_back(world[slot].member);
    }
    return span;
  }
  const bool pair = c.high >= kPairs && c.high - kPairs == c.low << 32;
  for (const WorldMember& m : world) {
    if (!pair || m.member / 2 == c.low) span.push_back(m.member);
  }
  return span;
}

bool Simulation::PointToPoint(const CommunicatorId& c) const { return c == kSends; }

void Simulation::Destroyed(MemberId member, Epoch era, const elastic::GenerationId& generation) {
  ledger_.Destroyed(member, era, generation);
  for (const Process* process : Alive()) {
    // A process that has left the world stands at the boundary and issues nothing.
    if (stored_->world.SlotOf(process->id()) && process->Needs(generation)) {
      ledger_.Violation(absl::StrCat("member ", member, " destroyed the generation of epoch ",
                                     generation.epoch, " that member ", process->id(),
                                     " still needs"));
    }
  }
}

StateNeeds Simulation::Needs(size_t slots) const {
  std::vector<uint32_t> all(slots);
  std::iota(all.begin(), all.end(), 0);
  StateNeeds needs = {{all, {}, {}}};
  if (volatile_) needs.push_back({all, all, {}});
  if (!sharded_) return needs;
  needs.front().pieces = all;
  for (const uint32_t slot : all) needs.push_back({{slot}, {}, {slot}});
  return needs;
}

void Simulation::Print(const std::string& text) const {
  if (!options_.print) return;
  std::printf("%10.4f %s\n", std::chrono::duration<double>(now() - Time{}).count() - 1000,
              text.c_str());
}

Process* Simulation::Find(MemberId id) const {
  const auto it = processes_.find(id);
  return it != processes_.end() && it->second->alive() ? it->second.get() : nullptr;
}

std::vector<Process*> Simulation::Alive() const {
  std::vector<Process*> alive;
  for (const auto& [id, process] : processes_) {
    if (process->alive()) alive.push_back(process.get());
  }
  return alive;
}

Process* Simulation::Spawn(MemberId id) {
  elastic::MemberOptions o;
  o.member = id;
  o.incarnation = random_.Next();
  o.cooperates = cooperates_;
  o.data_address = absl::StrCat("sim:", id);
  o.heartbeat = milliseconds(200);
  o.boundary = seconds(3);
  o.undecided = seconds(20);
  o.recover = seconds(60);
  o.planted_bug = options_.planted_bug;
  if (processes_.contains(id)) {
    ledger_.Violation(absl::StrCat("member id ", id, " was given out twice"));
    ended_.push_back(std::move(processes_[id]));
  }
  processes_[id] = std::make_unique<Process>(this, o);
  Connect(processes_[id].get());
  return processes_[id].get();
}

// ---- the leader ---------------------------------------------------------------------------------

void Simulation::StartLeader() {
  ++leader_life_;
  leader_tick_ = Time{};
  phase_since_ = now();
  phase_stalled_ = leader_stalled_ = Duration{};
  drains_.clear();
  leader_ = std::make_unique<elastic::Leader>(leader_options_, stored_.value_or(WorldRecord{}));
  RunLeader([this](auto* out) { leader_->Start(now(), out); });
}

void Simulation::CrashLeader(Duration down) {
  if (!leader_) return;
  Print("FAULT: the leader crashes");
  ++leader_restarts_;
  leader_.reset();
  ++leader_life_;
  crash_after_actions_.reset();
  stalled_inputs_.clear();
  leader_stalled_until_ = Time{};
  connection_of_.clear();
  for (auto& [number, connection] : connections_) {
    if (connection.open) Break(number, random_.OneIn(2), true);
  }
  After(down, [this] { StartLeader(); });
}

void Simulation::RunLeader(const std::function<void(std::vector<elastic::LeaderAction>*)>& input) {
  if (!leader_) return;
  if (now() < leader_stalled_until_) {
    stalled_inputs_.push_back(input);
    return;
  }
  const uint64_t life = leader_life_;
  std::vector<elastic::LeaderAction> actions;
  input(&actions);
  for (const elastic::LeaderAction& action : actions) {
    if (crash_after_actions_ && (*crash_after_actions_)-- == 0) {
      return CrashLeader(random_.Between(milliseconds(5), seconds(1)));
    }
    DoLeader(action);
    if (life != leader_life_) return;
  }
  TickLeader();
}

void Simulation::TickLeader() {
  const std::optional<Time> next = leader_->NextDeadline();
  if (!next || (leader_tick_ > now() && leader_tick_ <= *next)) return;
  leader_tick_ = std::max(*next, now() + milliseconds(1));
  At(leader_tick_, [this, life = leader_life_, at = leader_tick_] {
    if (life != leader_life_ || leader_tick_ != at) return;
    leader_tick_ = Time{};
    if (now() < leader_stalled_until_) return;  // the leader ticks when it continues
    RunLeader([this](auto* out) { leader_->OnTick(now(), out); });
  });
}

void Simulation::DoLeader(const elastic::LeaderAction& action) {
  ledger_.Log(6, action.index());
  if (const auto* a = std::get_if<elastic::SendTo>(&action)) {
    if (const auto* lost = std::get_if<elastic::Lost>(&a->message)) CheckLost(*lost);
    ToMember(a->member, a->message);
  } else if (const auto* a = std::get_if<elastic::CompareAndSwap>(&action)) {
    const bool commit = stored_ && a->record.world.epoch != stored_->world.epoch;
    if (commit && std::exchange(crash_at_commit_, false)) {
      Store(*a, milliseconds(random_.Below(400)));
      return CrashLeader(random_.Between(milliseconds(5), milliseconds(300)));
    }
    Store(*a, faults_ && random_.OneIn(25) ? milliseconds(random_.Below(1500)) : seconds(0));
  } else if (const auto* a = std::get_if<elastic::Spawn>(&action)) {
    for (MemberId m : a->members) {
      if (faults_ && random_.OneIn(30)) {
        After(milliseconds(5), [this, m, life = leader_life_] {
          if (life != leader_life_) return;
          RunLeader([this, m](auto* out) {
            leader_->OnSpawnFailed(now(), std::vector<MemberId>{m}, "injected", out);
          });
        });
        continue;
      }
      Duration start = random_.Between(milliseconds(20), milliseconds(200));
      if (!options_.plain && faults_ && more_random_.OneIn(8)) {
        start += milliseconds(more_random_.Below(3000));  // a slow start
      }
      After(start, [this, m] { Spawn(m); });
    }
  } else if (const auto* a = std::get_if<elastic::Kick>(&action)) {
    const auto it = connection_of_.find(a->member);
    if (it == connection_of_.end()) return;
    const int connection = it->second;
    connection_of_.erase(it);
    connections_[connection].known = false;
    Break(connection, true, true);
  } else if (const auto* a = std::get_if<elastic::EndProcess>(&action)) {
    // The launcher lets the process end by itself for up to 5 s.
    After(milliseconds(700) * (a->member % 8), [this, m = a->member] {
      if (Process* process = Find(m)) {
        process->Kill();
        ProcessEnded(process);
      }
    });
  } else if (const auto* a = std::get_if<elastic::EndJob>(&action)) {
    JobEnds(a->reason);
  } else if (const auto* a = std::get_if<elastic::Note>(&action)) {
    Print(absl::StrCat("[", std::string(elastic::PhaseName(a->phase)), " e", a->epoch, "] ",
                       a->text));
    CheckDeadline(*a);
    CheckDrain(*a);
    if (absl::string_view why = a->text; absl::ConsumePrefix(&why, "the job is stopped: ")) {
      leader_stops_ = std::string(why);
    }
    if (a->text.find("another leader") != std::string::npos) {
      ledger_.Violation("the only leader believes that there is another one");
    }
  }
}

bool Simulation::PartitionedLoss(const std::string& reason) const {
  if (!partitioned_ || !stored_) return false;
  const auto& members = stored_->world.members;
  const bool lost = std::any_of(members.begin(), members.end(), [&](const auto& m) {
    const Process* p = Find(m.member);
    return p == nullptr || p->was_cut_off_;
  });
  return lost && reason.find("does not span the whole world in its order") != std::string::npos;
}

// Returns whether a job may end for this reason. Valid reasons: lost state, no usable member, a
// reclaim notice or a fault for every member, or failed restores after two injected failures.
// Another valid reason is the loss of a member of a partitioned job, a documented limit of this
// version.
bool Simulation::MayEnd(const std::string& reason) const {
  const bool out_of_tries = reason.find("restored after a loss") != std::string::npos;
  const bool nobody = stored_ && std::none_of(stored_->world.members.begin(),
                                              stored_->world.members.end(), [&](const auto& m) {
                                                const Process* p = Find(m.member);
                                                return p != nullptr && !p->was_cut_off_;
                                              });
  const bool reclaimed =
      stored_ &&
      std::all_of(stored_->world.members.begin(), stored_->world.members.end(), [&](const auto& m) {
        const Process* p = Find(m.member);
        return p == nullptr || p->was_cut_off_ || p->reclaimed_;
      });
  return (StateIsLost() && !MustSurvive()) || nobody || reclaimed || PartitionedLoss(reason) ||
         (out_of_tries && injected_failures_ >= 2);
}

// Tells the launcher that the job cannot continue.
void Simulation::JobEnds(const std::string& reason) {
  Print(absl::StrCat("the job ends: ", reason));
  job_stopped_ = reason;
  if (!MayEnd(reason)) {
    ledger_.Violation(absl::StrCat("the job is stopped without need: ", reason));
  }
}

// A member may count as lost only after a fault of its own, or if it was drained with a deadline.
void Simulation::CheckLost(const elastic::Lost& lost) {
  for (MemberId id : lost.members) {
    const Process* process = Find(id);
    if (process == nullptr || process->was_cut_off_ || process->has_deadline_) continue;
    ledger_.Violation(absl::StrCat("member ", id, " is alive and counts as lost"));
  }
}

// Time in which the leader's process does not run must not count for a deadline. The shortest
// deadline that ends a phase with such a note is 3 s; the leader may count 250 ms of a stall.
void Simulation::CheckDeadline(const elastic::Note& note) {
  if (note.phase != phase_ || note.epoch != phase_epoch_) {
    phase_ = note.phase;
    phase_epoch_ = note.epoch;
    phase_since_ = now();
    phase_stalled_ = Duration{};
  }
  if (phase_stalled_ == Duration{} || note.text.find(" in time: ") == std::string::npos) return;
  if (note.text.find("did not leave in time: ") != std::string::npos)
    return;  // this deadline began with the drain
  if (now() - phase_since_ - phase_stalled_ >= milliseconds(2500)) return;
  ledger_.Violation(
      absl::StrCat("a deadline passed while the leader's process did not run: ", note.text));
}

void Simulation::Drained(MemberId member) {
  drains_.try_emplace(member, Drain{now(), leader_stalled_});
}

// The rule for a drain is similar: the leader may count 250 ms of each of a few stalls.
void Simulation::CheckDrain(const elastic::Note& note) {
  for (const auto& [member, drain] : drains_) {
    const std::string late = absl::StrCat("member ", member, " is lost: it did not leave in time");
    if (note.text.find(late) != 0) continue;
    late_.insert(member);
    if (now() - drain.since - (leader_stalled_ - drain.stalled) >= kDrainWithin - seconds(1)) {
      continue;
    }
    ledger_.Violation(absl::StrCat("a drain did not have its full time: ", note.text));
  }
}

// ---- the store ----------------------------------------------------------------------------------

// A swap reaches the store even if the leader that sent it has died meanwhile.
void Simulation::Store(const elastic::CompareAndSwap& swap, Duration slow) {
  const Time at =
      std::max(store_free_, now() + slow + random_.Between(microseconds(50), milliseconds(5)));
  if (slow == Duration{}) store_free_ = at;
  const bool lost = faults_ && random_.OneIn(40);        // the request is lost
  const bool unanswered = faults_ && random_.OneIn(40);  // the answer is lost
  At(at, [=, this, life = leader_life_] {
    elastic::StoreAnswer answer;
    if (!lost) {
      const uint64_t stands = stored_ ? stored_->revision : 0;
      answer.swapped = stands == swap.expected_revision;
      if (answer.swapped) {
        stored_ = swap.record;
        ledger_.Wrote(swap.record);
        Print(absl::StrCat("STORE: revision ", swap.record.revision, ", epoch ",
                           swap.record.world.epoch, ", reserved ", swap.record.reserved_epoch));
      }
      answer.current = stored_.value_or(WorldRecord{});
    }
    After(random_.Between(microseconds(20), milliseconds(1)), [=, this] {
      if (life != leader_life_) return;
      RunLeader([=, this](auto* out) {
        if (lost || unanswered) {
          leader_->OnStoreResult(now(), absl::UnavailableError("injected"), out);
        } else {
          leader_->OnStoreResult(now(), answer, out);
        }
      });
    });
  });
}

// ---- the run ------------------------------------------------------------------------------------

Result Simulation::Run() {
  StartLeader();
  for (MemberId m : leader_options_.initial_members) {
    After(random_.Between(milliseconds(1), milliseconds(300)), [this, m] { Spawn(m); });
  }
  PlanFaults();
  const Time faults_end = now() + seconds(15);
  while (queue_.RunOne(faults_end)) {
  }
  faults_ = false;
  crash_after_actions_.reset();
  crash_at_commit_ = false;
  Print("no more faults");
  // From now on every pending change must end within its deadlines, and training must continue.
  const Time settled_by = now() + seconds(90);
  const auto settled = [this] {
    return leader_ && (leader_->steady() || leader_->phase() == elastic::Phase::kStopped);
  };
  // Silence, a stall or a restart must be detected first.
  const Time settle_from = now() + seconds(5);
  while (queue_.RunOne(settle_from)) {
  }
  while (!settled() && queue_.RunOne(settled_by)) {
  }
  const Time told_by = now() + milliseconds(100);  // the leader's last messages are in flight
  while (queue_.RunOne(told_by)) {
  }
  Check();
  if (partitioned_ && (ledger_.commits(elastic::TransitionKind::kBoundary) > 0 ||
                       ledger_.commits(elastic::TransitionKind::kLoss) > 0)) {
    ledger_.Violation("a job with communicators over part of its members changed its members");
  }
  Result result;
  result.violations = ledger_.violations();
  result.hash = ledger_.hash();
  result.swaps = ledger_.commits(elastic::TransitionKind::kSwap);
  result.boundaries = ledger_.commits(elastic::TransitionKind::kBoundary);
  result.losses = ledger_.commits(elastic::TransitionKind::kLoss);
  result.leader_restarts = leader_restarts_;
  result.versions = ledger_.highest_version();
  result.stopped = job_stopped_.has_value();
  result.partitioned = partitioned_;
  return result;
}

}  // namespace rewire::sim
