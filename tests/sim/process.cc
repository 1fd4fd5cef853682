// The modelled participant and program; see process.h.
#include "tests/sim/process.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/state/snapshot/slot_notes.h"
#include "tests/sim/simulation.h"

namespace rewire::sim {
namespace {

constexpr uint32_t kOperationsPerStep = 5;

template <typename T>
bool Has(const std::vector<T>& all, T one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// Adds a copy of a version, and drops the oldest as Snapshotter does.
void Keep(std::vector<uint64_t>* versions, uint64_t version) {
  versions->push_back(version);
  if (versions->size() > state::kKeptVersions) versions->erase(versions->begin());
}

}  // namespace

Process::Process(Simulation* sim, const elastic::MemberOptions& options)
    : sim_(sim), options_(options), member_(std::make_unique<elastic::Member>(options)) {}

bool Process::frozen() const { return sim_->now() < frozen_until_; }

// ---- the machine --------------------------------------------------------------------------------

void Process::Run(const std::function<void(std::vector<elastic::MemberAction>*)>& input) {
  if (!alive_) return;
  if (frozen()) {
    frozen_inputs_.push_back(input);
    return;
  }
  std::vector<elastic::MemberAction> actions;
  input(&actions);
  for (const elastic::MemberAction& action : actions) {
    if (!alive_) return;
    Do(action);
  }
  Tick();
}

void Process::Tick() {
  const std::optional<Time> next = member_->NextDeadline();
  if (!alive_ || !next || (tick_at_ > sim_->now() && tick_at_ <= *next)) return;
  tick_at_ = std::max(*next, sim_->now() + milliseconds(1));
  const Time at = tick_at_;
  sim_->At(at, [this, at] {
    if (!alive_ || tick_at_ != at) return;
    tick_at_ = Time{};
    Run([this](auto* out) { member_->OnTick(sim_->now(), elastic::Heartbeat{begun_, {}}, out); });
  });
}

void Process::Later(Duration delay,
                    std::function<void(std::vector<elastic::MemberAction>*)> input) {
  sim_->After(delay, [this, input = std::move(input)] { Run(input); });
}

void Process::Connected() {
  Run([this](auto* out) { member_->OnConnected(sim_->now(), out); });
}
void Process::Disconnected() {
  Run([this](auto* out) { member_->OnDisconnected(sim_->now(), out); });
}
void Process::Receive(const elastic::Message& message) {
  Run([this, message](auto* out) { member_->OnMessage(sim_->now(), message, out); });
}
void Process::Reclaim(Duration within) {
  has_deadline_ = reclaimed_ = true;
  Run([this, within](auto* out) { member_->OnReclaim(sim_->now(), within, out); });
}

void Process::Freeze(Duration duration) {
  if (!alive_) return;
  frozen_until_ = std::max(frozen_until_, sim_->now() + duration);
  sim_->At(frozen_until_, [this] {
    if (frozen()) return;
    std::vector<std::function<void(std::vector<elastic::MemberAction>*)>> inputs;
    inputs.swap(frozen_inputs_);
    for (const auto& input : inputs) Run(input);
    if (alive_) Tick();
  });
}

void Process::Kill() {
  alive_ = false;
  ++program_token_;
}

void Process::Exit() {
  if (!alive_) return;
  Kill();
  sim_->ProcessEnded(this);
}

std::vector<elastic::CommunicatorCounter> Process::Counters() const {
  std::vector<elastic::CommunicatorCounter> counters{{kUpdateBoundary, begun_}};
  for (const auto& [id, c] : communicators_) {
    if (c.group.empty() || groups_.at(c.group) == id) counters.push_back({id, c.issued});
  }
  return counters;
}

void Process::Do(const elastic::MemberAction& action) {
  SeededRandom& random = sim_->random();
  sim_->ledger().Log(5, action.index() ^ (uint64_t{id()} << 32));
  if (const auto* a = std::get_if<elastic::SendMessage>(&action)) {
    sim_->ToLeader(this, a->message);
  } else if (const auto* a = std::get_if<elastic::EnterWorld>(&action)) {
    joining_ = a->joining;
    era_ = a->world.epoch;
    world_ = a->world.members;
    Start();
  } else if (const auto* a = std::get_if<elastic::MintIds>(&action)) {
    for (const CommunicatorId& c : a->communicators) {
      const Epoch epoch = a->epoch;
      Later(random.Between(microseconds(10), milliseconds(2)), [=, this](auto* out) {
        member_->OnMinted(sim_->now(), epoch, c, {}, elastic::UniqueIdBytes(128, 'u'), out);
      });
    }
  } else if (const auto* a = std::get_if<elastic::MakePlan>(&action)) {
    const Epoch epoch = a->epoch;
    MintGroups(*a);
    Later(random.Between(milliseconds(1), milliseconds(20)),
          [=, this](auto* out) { member_->OnPlanned(sim_->now(), epoch, epoch * 17, out); });
  } else if (const auto* a = std::get_if<elastic::BuildGenerations>(&action)) {
    const Epoch epoch = a->epoch;
    builds_ = a->builds;
    const bool fails = sim_->faults() && random.OneIn(60);
    if (fails) sim_->CountInjectedFailure();
    const Duration slow = sim_->faults() && random.OneIn(40) ? seconds(4) : seconds(0);
    if (slow > Duration{}) sim_->CountInjectedFailure();
    if (!aborted_) building_ = epoch;
    const Duration others = aborted_ ? Duration{} : std::max(Duration{}, retired_at_ - sim_->now());
    Later(random.Between(milliseconds(20), milliseconds(300)) + slow + others, [=,
                                                                                this](auto* out) {
      if (building_ == epoch) building_.reset();
      if (!fails) built_ = std::max(built_, epoch);
      member_->OnBuilt(sim_->now(), epoch,
                       fails ? absl::InternalError("injected") : absl::OkStatus(), Counters(), out);
    });
  } else if (const auto* a = std::get_if<elastic::PledgeCuts>(&action)) {
    const std::optional<elastic::CutRefusal> refusal = Pledge(a->epoch, a->cuts);
    const auto counters = Counters();
    Later(microseconds(20), [=, this, epoch = a->epoch, round = a->round](auto* out) {
      member_->OnPledged(sim_->now(), epoch, round, refusal, counters, out);
    });
  } else if (const auto* a = std::get_if<elastic::PledgeBoundary>(&action)) {
    std::optional<elastic::CutRefusal> refusal;
    if (begun_ > a->step) refusal = elastic::CutRefusal{kUpdateBoundary, "the update has begun"};
    if (!refusal) pledged_step_ = a->step;
    const auto counters = Counters();
    Later(microseconds(20), [=, this, epoch = a->epoch, round = a->round](auto* out) {
      member_->OnPledged(sim_->now(), epoch, round, refusal, counters, out);
    });
  } else if (const auto* a = std::get_if<elastic::DecideCuts>(&action)) {
    Decide(a->epoch, a->go);
  } else if (std::holds_alternative<elastic::ReleaseBoundary>(action)) {
    pledged_step_.reset();
  } else if (const auto* a = std::get_if<elastic::FinishStream>(&action)) {
    streaming_ = a->epoch;
    FinishStreamWhenOthersStand(a->epoch, 0);
  } else if (std::holds_alternative<elastic::DescribeBoundary>(action)) {
    if (state_ == State::kStanding) {
      Later(microseconds(5), [this](auto* out) {
        if (state_ == State::kStanding) member_->OnBoundary(sim_->now(), Info(), out);
      });
    }
  } else if (const auto* a = std::get_if<elastic::RestoreFrom>(&action)) {
    const bool fails = sim_->faults() && random.OneIn(60);
    if (fails) sim_->CountInjectedFailure();
    received_version_ = a->version;
    // Written in place, the state has no version until the commit.
    if (!Has(a->sources.live, id())) whole_ = false;
    Later(random.Between(milliseconds(5), milliseconds(100)), [=, this,
                                                               epoch = a->epoch](auto* out) {
      member_->OnStreamed(sim_->now(), epoch,
                          fails ? absl::InternalError("injected") : absl::OkStatus(), 1, 1, out);
    });
  } else if (const auto* a = std::get_if<elastic::Adopt>(&action)) {
    Adopted(*a);
  } else if (std::holds_alternative<elastic::AbandonEpoch>(action)) {
    pledged_step_.reset();
    streaming_.reset();
    building_.reset();
    for (auto& [c, comm] : communicators_) comm.pledged.reset();
    if (state_ == State::kBlocked) Continue();
  } else if (const auto* a = std::get_if<elastic::RetireGenerations>(&action)) {
    Retire(a->generations);
  } else if (std::holds_alternative<elastic::AbortCurrent>(action)) {
    aborted_ = true;
    building_.reset();
    for (auto& [c, comm] : communicators_) {
      comm.open = false;
      comm.pledged.reset();
      comm.pending.clear();
      comm.old.clear();
    }
    Moved();
    // Blocked calls end with an error at once. A computing program receives the error at its next
    // call, and an update without a collective ends first.
    if (state_ != State::kStanding && !(updating_ && sim_->local_updates())) {
      Program(random.Between(microseconds(100), milliseconds(30)), [this] { Stand(); });
    }
  } else if (const auto* a = std::get_if<elastic::Resume>(&action)) {
    if (state_ != State::kStanding) {
      return sim_->ledger().Violation(absl::StrCat("member ", id(), " resumed, but did not stand"));
    }
    switch (a->kind) {
      case elastic::ResumeKind::kContinue:
      case elastic::ResumeKind::kWorldChanged:
        return Program(microseconds(50), [this] { AtUpdate(); });
      case elastic::ResumeKind::kRepeat:
        return Program(microseconds(50), [this] { NextOperation(); });
      case elastic::ResumeKind::kLeave:
        return Exit();
    }
  } else if (const auto* a = std::get_if<elastic::StopProcess>(&action)) {
    abandoned_ = true;
    sim_->ProcessStopped(this, a->reason);
    Exit();
  }
}

// ---- the program --------------------------------------------------------------------------------

void Process::Program(Duration delay, std::function<void()> step) {
  const uint64_t token = ++program_token_;
  sim_->After(delay, [this, token, step = std::move(step)]() {
    if (!alive_ || token != program_token_) return;
    if (!frozen()) return step();
    // A stopped process continues at the point where it stopped.
    sim_->At(frozen_until_ + microseconds(1), [this, token, step] {
      if (alive_ && token == program_token_) step();
    });
  });
}

void Process::Start() {
  for (const CommunicatorId& c : sim_->communicators()) CreateCommunicator(c);
  for (const std::string& name : sim_->groups()) CreateGroup(name);
  if (joining_) {
    Program(sim_->random().Between(milliseconds(5), milliseconds(100)), [this] { Stand(); });
  } else {
    if (sim_->sharded() || sim_->has_volatile()) own_ = {0};
    if (sim_->sharded()) buddy_ = {0};
    Program(milliseconds(1), [this] { NextOperation(); });
  }
}

void Process::CreateCommunicator(const CommunicatorId& c) {
  if (era_ == 0 || communicators_.contains(c)) return;
  const std::vector<MemberId> span = sim_->SpanOf(c, id(), world_);
  const auto rank = std::find(span.begin(), span.end(), id());
  if (rank == span.end()) return;
  communicators_[c].generation = era_;
  communicators_[c].point_to_point = sim_->PointToPoint(c);
  const elastic::CommunicatorCreated created{c,
                                             static_cast<uint32_t>(span.size()),
                                             {static_cast<uint32_t>(rank - span.begin())},
                                             false,
                                             "",
                                             "",
                                             0};
  Later(microseconds(1),
        [this, created](auto* out) { member_->OnCommunicatorCreated(sim_->now(), created, out); });
  Moved();
}

void Process::NextOperation() {
  state_ = State::kComputing;
  if (operations_ >= kOperationsPerStep) {
    operations_ = 0;
    return Program(milliseconds(1), [this] { AtUpdate(); });
  }
  current_ = sim_->CommunicatorFor(id(), version_, operations_);
  const uint32_t group = kOperationsPerStep - 1 - operations_;
  if (group < sim_->groups().size()) current_ = groups_.at(sim_->groups()[group]);
  updating_ = false;
  Program(sim_->random().Between(milliseconds(5), milliseconds(15)), [this] { Issue(); });
}

void Process::Issue() {
  if (aborted_) return Stand();
  Communicator& c = communicators_[current_];
  const std::optional<elastic::PendingSwap> passed = c.passed;
  if (!PassCuts(current_)) {
    state_ = State::kBlocked;
    return;
  }
  if (c.passed != passed) {
    // The host may hold the thread back between the swap and its first operation.
    state_ = State::kComputing;
    const milliseconds most(sim_->more_random().OneIn(2) ? 1000 : 20);
    return Program(sim_->random().Between(microseconds(1), most), [this] { Issue(); });
  }
  state_ = State::kInOperation;
  const uint64_t index = c.issued++;
  sim_->ledger().Issued(id(), era_, current_, index, c.generation);
  sim_->Issued(this, era_, current_, index, world_);
}

void Process::OperationDone(Epoch era, const CommunicatorId& c, uint64_t index) {
  if (!alive_ || state_ != State::kInOperation || era != era_ || c != current_ ||
      communicators_[c].issued != index + 1 || aborted_) {
    return;
  }
  if (updating_) {
    Program(milliseconds(1), [this] { EndUpdate(); });
  } else {
    ++operations_;
    Program(microseconds(10), [this] { NextOperation(); });
  }
}

void Process::AtUpdate() {
  waits_at_update_ = false;
  if (aborted_ || (pledged_step_ && begun_ >= *pledged_step_)) return Stand();
  if (sim_->finish_at() && version_ >= *sim_->finish_at()) {
    Run([this](auto* out) { member_->OnFinished(sim_->now(), out); });
    return Exit();
  }
  if (!copied_) {
    state_ = State::kWaitingForCopy;
    return;
  }
  const auto due = std::find_if(swaps_.begin(), swaps_.end(),
                                [&](const auto& each) { return each.second <= version_; });
  if (due == swaps_.end()) return BeginUpdate();
  // A swap that is not decided may replace the swap that is due.
  waits_at_update_ = std::any_of(swaps_.begin(), swaps_.end(),
                                 [&](const auto& each) { return !decided_.contains(each.first); });
  const bool held = options_.planted_bug != elastic::PlantedBug::kUpdateNotHeld;
  if (waits_at_update_ && (held || !decided_.contains(due->first))) {
    state_ = State::kBlocked;
    return;
  }
  waits_at_update_ = false;
  state_ = State::kComputing;
  switching_ = true;
  const Epoch epoch = due->first;
  swaps_.erase(due);
  Program(sim_->random().Between(microseconds(1), milliseconds(2)), [this, epoch] {
    SwapAtUpdate(epoch);
    switching_ = false;
    AtUpdate();
  });
}

void Process::Continue() {
  Program(microseconds(1), [this] { waits_at_update_ ? AtUpdate() : Issue(); });
}

void Process::BeginUpdate() {
  ++begun_;
  whole_ = false;
  updating_ = true;
  state_ = State::kComputing;
  if (sim_->local_updates()) {
    Program(sim_->random().Between(microseconds(200), milliseconds(20)), [this] { EndUpdate(); });
    return;
  }
  current_ = sim_->communicators()[0];
  Program(milliseconds(1), [this] { Issue(); });
}

void Process::EndUpdate() {
  updating_ = false;
  sim_->ledger().Applied(id(), version_, era_);
  ++version_;
  whole_ = true;
  // Sharded state is not copied after a loss.
  if (!aborted_ || !sim_->sharded()) {
    if (sim_->sharded() || sim_->has_volatile()) Keep(&own_, version_);
    Copy();
  }
  NextOperation();
}

void Process::Copy() {
  copied_ = !sim_->sharded();
  if (!copied_) sim_->CopyToBuddy(this, era_, world_, version_);
}

void Process::BuddyCopyArrived(Epoch era, uint64_t version) {
  if (!alive_ || era != era_ || aborted_) return;  // after a loss the copies stop
  Keep(&buddy_, version);
}

void Process::BuddyCopyDone(Epoch era, uint64_t version) {
  if (!alive_ || era != era_ || version != version_) return;
  copied_ = true;
  if (state_ == State::kWaitingForCopy) Program(microseconds(1), [this] { AtUpdate(); });
}

void Process::Stand() {
  state_ = State::kStanding;
  waits_at_update_ = switching_ = false;
  // Another thread learns that the program stands at the boundary; the change may be cancelled
  // meanwhile.
  const bool late = sim_->random().OneIn(4);
  Later(late ? sim_->random().Between(microseconds(1), milliseconds(5)) : microseconds(1),
        [this](auto* out) {
          if (state_ != State::kStanding) return;
          member_->OnBoundary(sim_->now(), Info(), out);
          if (!member_->standing() || joining_ || aborted_) return;
          if (pledged_step_ && version_ >= *pledged_step_) return;
          sim_->ledger().Violation(absl::StrCat("member ", id(), " is kept standing at ", version_,
                                                " for nothing that is under way"));
        });
}

elastic::BoundaryInfo Process::Info() const {
  // The program changes volatile state before it learns of a loss.
  const bool copied = !aborted_ || !sim_->has_volatile() || Has(own_, version_);
  return {version_, whole_ && copied, own_, buddy_, sim_->Needs(world_.size())};
}

// A joiner receives its state from the other members, which must all be at the boundary for the
// last part.
void Process::FinishStreamWhenOthersStand(Epoch epoch, int tries) {
  Later(sim_->random().Between(milliseconds(5), milliseconds(60)), [=, this](auto* out) {
    if (streaming_ != epoch) return;  // abandoned
    if (!sim_->SourcesStand()) {
      if (tries < 100) FinishStreamWhenOthersStand(epoch, tries + 1);
      return;
    }
    const bool fails = sim_->faults() && sim_->random().OneIn(60);
    if (fails) sim_->CountInjectedFailure();
    received_version_ = joining_ ? sim_->SourceVersion() : version_;
    member_->OnStreamed(sim_->now(), epoch,
                        fails ? absl::InternalError("injected") : absl::OkStatus(), 1, 1, out);
  });
}

void Process::Adopted(const elastic::Adopt& adopt) {
  const Epoch epoch = adopt.record.world.epoch;
  if (built_ != epoch && adopt.slot) {
    sim_->ledger().Violation(absl::StrCat("member ", id(), " goes to generations of epoch ", epoch,
                                          " that it has not built"));
  }
  if (adopt.kind == elastic::TransitionKind::kSwap) {
    sim_->ledger().Adopted(id(), adopt.record, adopt.kind, version_, true);
    return;
  }
  version_ = received_version_.value_or(0);
  sim_->ledger().Adopted(id(), adopt.record, adopt.kind, version_, adopt.slot.has_value());
  if (!adopt.slot) return;
  begun_ = first_version_ = version_;
  whole_ = true;
  joining_ = false;
  aborted_ = false;
  pledged_step_.reset();
  operations_ = 0;
  updating_ = false;
  era_ = epoch;
  world_ = adopt.record.world.members;
  own_.clear();
  if (sim_->sharded() || sim_->has_volatile()) own_ = {version_};
  buddy_.clear();
  copied_ = false;
  for (auto& [c, comm] : communicators_) {
    if (!comm.group.empty()) continue;
    // A joiner already has the generation of this epoch.
    if (comm.open && comm.generation != epoch) comm.old.push_back(comm.generation);
    for (const elastic::PendingSwap& swap : comm.pending) comm.old.push_back(swap.epoch);
    std::sort(comm.old.begin(), comm.old.end());
    comm = Communicator{"", 0, true, epoch, comm.point_to_point, {}, {}, false, {}, comm.old};
  }
  MoveToGroups(epoch);
  Later(microseconds(1),
        [this](auto* out) { member_->OnPositions(sim_->now(), Positions(), out); });
  Copy();
  Later(microseconds(200),
        [this, epoch](auto* out) { member_->OnEntered(sim_->now(), epoch, 1000, out); });
}

}  // namespace rewire::sim
