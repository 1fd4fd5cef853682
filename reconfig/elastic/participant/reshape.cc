// Prepares and streams the state of one transition; see reshape.h.
#include "reconfig/elastic/participant/reshape.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>

#include "reconfig/base/bytes.h"
#include "reconfig/base/check.h"
#include "reconfig/base/hash.h"
#include "reconfig/base/log.h"
#include "reconfig/base/short_turns.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/state/plan/layout_hash.h"

namespace rewire::elastic {
namespace {

// The limit of a wait that the leader ends by a decision or by ending the transition.
constexpr Duration kLongest = seconds(3600);

double Milliseconds(Duration d) { return static_cast<double>(ToNanoseconds(d)) / 1e6; }

}  // namespace

Reshape::Reshape(ReshapeContext context, MakePlan request)
    : context_(std::move(context)),
      request_(std::move(request)),
      key_{state::Purpose::kTransition, request_.epoch, request_.secret},
      parts_([this] { return Cancelled(); }),
      outflow_(key_, context_.transport, context_.budget),
      sharing_(SharingOptions(), &notes_, &outflow_) {
  thread_ = std::thread([this] { Run(); });
}

PeerSharing::Options Reshape::SharingOptions() {
  PeerSharing::Options options;
  options.epoch = request_.epoch;
  options.peer_copy = context_.peer_copy;
  options.build = context_.build;
  options.publish = context_.publish_offer;
  options.ask = context_.ask_offer;
  options.cancelled = [this] { return Cancelled(); };
  options.pause = [this] {
    MutexLock lock(&mutex_);
    changed_.WaitUntil(&mutex_, Now() + milliseconds(5));
  };
  return options;
}

Reshape::~Reshape() { End(); }

void Reshape::End() {
  Cancel();
  if (thread_.joinable()) thread_.join();
}

void Reshape::Start(uint64_t step) {
  MutexLock lock(&mutex_);
  start_ = true;
  step_ = step;
  changed_.NotifyAll();
}

void Reshape::Finish() {
  MutexLock lock(&mutex_);
  finish_ = true;
  changed_.NotifyAll();
}

void Reshape::Restore(uint64_t version, RestoreSources sources, bool recheck) {
  MutexLock lock(&mutex_);
  restore_ = true;
  recheck_ = recheck;
  version_ = version;
  sources_ = std::move(sources);
  changed_.NotifyAll();
}

void Reshape::Cancel() {
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (intake_ != nullptr) intake_->Cancel();
    changed_.NotifyAll();
  }
  notes_.Cancel();
  outflow_.Cancel();
  sharing_.pull().Cancel();
  placed_check_.Cancel();
  context_.transport->Close(key_);
}

bool Reshape::Cancelled() {
  MutexLock lock(&mutex_);
  return cancelled_;
}

bool Reshape::WaitFor(const bool* flag) {
  MutexLock lock(&mutex_);
  while (!*flag && !cancelled_) changed_.WaitUntil(&mutex_, Now() + kLongest);
  return !cancelled_;
}

void Reshape::Run() {
  pthread_setname_np(pthread_self(), "rewire-stream");
  const bool loss = request_.kind == TransitionKind::kLoss;
  absl::StatusOr<uint64_t> hash = absl::UnknownError("");
  // Preparation has time, but the stream must be complete when the step ends. A thread cannot raise
  // its priority again, so preparation runs on its own thread. After a loss the program waits for
  // the preparation, so there is no training to disturb.
  std::thread prepare([&] {
    pthread_setname_np(pthread_self(), "rewire-prepare");
    if (!loss) setpriority(PRIO_PROCESS, 0, 10);
    TakeShortTurns();
    hash = MakeThePlan();
  });
  prepare.join();
  TakeShortTurns();
  for (const state::PlacedTensor& t : state_.tensors) {
    if (!hash.ok() || t.place.kind != state::MemoryKind::kDevice) continue;
    absl::Status warm = outflow_.WarmDevice(t.place.context);
    if (warm.ok()) warm = sharing_.pull().WarmDevice(t.place.context);
    if (warm.ok()) warm = placed_check_.WarmDevice(t.place.context);
    if (!warm.ok()) hash = warm;
    break;
  }
  const bool planned = hash.ok();
  context_.planned(std::move(hash));
  if (planned && WaitFor(loss ? &restore_ : &start_)) {
    uint64_t step = 0;
    {
      MutexLock lock(&mutex_);
      step = step_;
    }
    absl::Status status = loss ? StreamRestore() : StreamChange(step);
    // A failed stream must stop writing, because the answer may end the transition at once.
    if (!status.ok()) context_.transport->Close(key_);
    if (!Cancelled()) context_.streamed(std::move(status), bytes_in(), bytes_out());
  }
  finished_ = true;
}

// ---- PREPARE ------------------------------------------------------------------------------------

absl::StatusOr<uint64_t> Reshape::MakeThePlan() {
  const Time deadline = Now() + context_.build;
  REWIRE_RETURN_IF_ERROR(context_.mint_groups());
  std::optional<ProgramState> state;
  while (!(state = context_.wait_state(Now() + milliseconds(50)))) {
    if (Cancelled()) return absl::CancelledError("the transition was aborted");
    if (Now() >= deadline) {
      return absl::DeadlineExceededError(
          "plan: the program did not call its first rewireUpdate(), or adopt the change before, "
          "within REWIRE_BUILD_MS");
    }
  }
  state_ = std::move(*state);
  for (const state::PlacedTensor& t : state_.tensors) shapes_.push_back(t.shape);
  const Time begin = Now();
  REWIRE_RETURN_IF_ERROR(context_.check_shapes());
  const Time checked = Now();
  REWIRE_RETURN_IF_ERROR(SeatWorlds());
  REWIRE_RETURN_IF_ERROR(parts_.Allocate(state_, *new_layout_, request_.to.SlotOf(context_.self)));
  const bool loss = request_.kind == TransitionKind::kLoss;
  // After a loss the program waits, so memory is touched only when it is written.
  if (!loss) REWIRE_RETURN_IF_ERROR(parts_.Touch(state_));
  const Time allocated = Now();
  if (!loss) ReserveSnapshots();
  REWIRE_DEBUG(
      "epoch %llu: %.1f ms to compare the state, %.1f ms to allocate parts, %.1f ms to "
      "reserve snapshots",
      static_cast<unsigned long long>(epoch()), Milliseconds(checked - begin),
      Milliseconds(allocated - checked), Milliseconds(Now() - allocated));
  if (loss) return HashOfWorlds();
  REWIRE_ASSIGN_OR_RETURN(const state::MemberPlan plan,
                          state::PlanFor(context_.self, state::Sources(from_), to_));
  REWIRE_RETURN_IF_ERROR(Resolve(plan));
  REWIRE_RETURN_IF_ERROR(OpenStream());
  sharing_.PublishOffer(state_);
  REWIRE_RETURN_IF_ERROR(sharing_.TakeFromPeers(request_.from, incoming_, intake_.get()));
  if (std::any_of(outgoing_.begin(), outgoing_.end(),
                  [](const state::Outgoing& o) { return !o.local; })) {
    outflow_.Warm();
  }
  return HashOfWorlds() ^ plan.hash;
}

absl::Status Reshape::SeatWorlds() {
  const auto slots = [](const World& world) { return static_cast<uint32_t>(world.members.size()); };
  // A joiner has the layout of the world that it enters.
  if (state_.joining) {
    REWIRE_ASSIGN_OR_RETURN(old_layout_, LayoutOf(state_, slots(request_.from)));
  } else {
    old_layout_ = state_.layout;
    REWIRE_DCHECK(old_layout_->slots() == slots(request_.from));
  }
  new_layout_ = old_layout_;
  if (slots(request_.to) != slots(request_.from)) {
    REWIRE_ASSIGN_OR_RETURN(new_layout_, LayoutOf(state_, slots(request_.to)));
  }
  from_.layout = old_layout_.get();
  to_.layout = new_layout_.get();
  // A job is on one node.
  for (const WorldMember& m : request_.from.members) from_.seats.push_back({m.member, 0});
  for (const WorldMember& m : request_.to.members) to_.seats.push_back({m.member, 0});
  // The program's layouts may differ in more than their divisions.
  return CheckSameTensors(from_, to_);
}

uint64_t Reshape::HashOfWorlds() const {
  ByteWriter out;
  out.Put(HashOf(*old_layout_));
  out.Put(HashOf(*new_layout_));
  for (const World* world : {&request_.from, &request_.to}) {
    out.Put(world->epoch);
    for (const WorldMember& m : world->members) {
      out.Put(m.member);
      out.Put(m.incarnation);
    }
  }
  return ContentHash(out.bytes().data(), out.bytes().size(), 0);
}

void Reshape::ReserveSnapshots() {
  const std::optional<uint32_t> slot = request_.to.SlotOf(context_.self);
  if (!slot) return;
  snapshot_memory_ = context_.snapshots->Reserve(*new_layout_, *slot);
}

absl::Status Reshape::Resolve(const state::MemberPlan& plan) {
  const StateSources sources{state_.tensors, context_.snapshots, version_};
  REWIRE_ASSIGN_OR_RETURN(
      ResolvedPlan resolved,
      ResolvePlan(plan, context_.self, {from_, to_, request_.to}, sources, parts_.targets()));
  incoming_ = std::move(resolved.incoming);
  outgoing_ = std::move(resolved.outgoing);
  return absl::OkStatus();
}

absl::Status Reshape::OpenStream() {
  state::TensorNames names;
  for (const state::TensorShape& shape : shapes_) names.push_back(shape.name);
  outflow_.SetNames(names);
  sharing_.pull().SetNames(names);
  placed_check_.SetNames(names);
  {
    MutexLock lock(&mutex_);
    if (cancelled_) return absl::CancelledError("the transition was aborted");
    intake_ = std::make_unique<state::Intake>(incoming_, &notes_, std::move(names));
  }
  // Members of both worlds: leaving members also send, and joiners send notes.
  std::vector<WorldMember> senders = request_.from.members;
  senders.insert(senders.end(), request_.to.members.begin(), request_.to.members.end());
  context_.transport->Open(key_, std::move(senders), intake_.get());
  // Cancel() may have closed the stream before Open().
  if (Cancelled()) {
    context_.transport->Close(key_);
    return absl::CancelledError("the transition was aborted");
  }
  return absl::OkStatus();
}

// ---- the stream ---------------------------------------------------------------------------------

std::vector<state::Outgoing> Reshape::Select(bool constant) const {
  std::vector<state::Outgoing> out;
  for (const state::Outgoing& o : outgoing_) {
    if ((shapes_[o.tensor].change == state::Change::kConstant) == constant) out.push_back(o);
  }
  return out;
}

absl::Status Reshape::StreamChange(uint64_t step) {
  if (!state_.joining) {
    while (!context_.wait_version(step, Now() + milliseconds(50))) {
      if (Cancelled()) return absl::CancelledError("the transition was aborted");
    }
  }
  // The update before the boundary has returned: constant state does not change from here on.
  const Time begin = Now();
  // A joiner stands from the start; the leader judges the duration of the others' steps.
  const Duration patience = state_.joining ? kLongest : context_.boundary;
  const Time deadline = begin + patience;
  absl::Status status = sharing_.ServePulls(&outgoing_);
  if (status.ok()) status = sharing_.TellReady(step, deadline);
  if (status.ok()) status = sharing_.pull().Fetch(deadline);
  if (status.ok()) status = outflow_.Send(Select(true), step, true, deadline);
  const Time sent = Now();
  if (!WaitFor(&finish_)) return absl::CancelledError("the transition was aborted");
  const Time finish = Now();
  if (!status.ok()) return status;
  // The data that other members wait for goes first.
  status = sharing_.TellContents(state::NoteKind::kLate, shapes_, Now() + patience);
  if (status.ok()) status = outflow_.Send(Select(false), step, false, Now() + patience);
  if (status.ok())
    status = sharing_.TellContents(state::NoteKind::kContents, shapes_, Now() + patience);
  if (status.ok()) status = outflow_.Recheck();
  const Time checked = Now();
  if (status.ok()) status = FinishWire(patience);
  if (status.ok()) status = sharing_.pull().Check(Now() + patience);
  const Time complete = Now();
  if (status.ok()) status = CheckPlaced();
  REWIRE_DEBUG(
      "epoch %llu: %.1f ms for constant state, boundary after %.1f ms more, %.1f ms to "
      "check it, %.1f ms for the rest, %.1f ms to check what was placed",
      static_cast<unsigned long long>(epoch()), Milliseconds(sent - begin),
      Milliseconds(finish - sent), Milliseconds(checked - finish), Milliseconds(complete - checked),
      Milliseconds(Now() - complete));
  return status;
}

absl::Status Reshape::StreamRestore() {
  REWIRE_ASSIGN_OR_RETURN(const state::MemberPlan plan,
                          state::PlanFor(context_.self, state::Sources(from_, sources_), to_));
  REWIRE_RETURN_IF_ERROR(Resolve(plan));
  REWIRE_RETURN_IF_ERROR(OpenStream());
  // Others may still make their plans. The leader judges the duration.
  const Duration patience = context_.build + context_.boundary;
  REWIRE_RETURN_IF_ERROR(outflow_.Send(outgoing_, version_, false, Now() + patience));
  REWIRE_RETURN_IF_ERROR(FinishWire(patience));
  REWIRE_RETURN_IF_ERROR(CheckPlaced());
  return recheck_ ? CheckKept(plan, context_.self, context_.snapshots->kept(), version_)
                  : absl::OkStatus();
}

absl::Status Reshape::CheckPlaced() {
  std::vector<state::PlacedBytes> placed = intake_->Placed();
  for (const auto& more : {outflow_.placed(), sharing_.pull().Placed()}) {
    placed.insert(placed.end(), more.begin(), more.end());
  }
  return placed_check_.Run(placed);
}

absl::Status Reshape::FinishWire(Duration within) {
  const Time deadline = Now() + within;
  REWIRE_RETURN_IF_ERROR(outflow_.WaitPlaced(deadline));
  return intake_->Wait(deadline);
}

}  // namespace rewire::elastic
