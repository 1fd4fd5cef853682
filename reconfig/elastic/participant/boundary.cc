// The program's thread at the update boundary; see participant.h. Owned by the program's thread.
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/elastic/participant/participant.h"
#include "reconfig/elastic/participant/process.h"

namespace rewire::elastic {
namespace {

// Limit of the comparison at the first update; a change compares again.
constexpr Duration kForNeighbour = seconds(3);

}  // namespace

absl::Status Participant::WaitConnected(Time deadline) {
  MutexLock lock(&mutex_);
  while (!was_connected_) {
    if (gate_.finished()) return absl::FailedPreconditionError(gate_.reason());
    if (!changed_.WaitUntil(&mutex_, deadline) && !was_connected_) {
      return absl::DeadlineExceededError(
          absl::StrCat("connect to the agent: REWIRE_SOCKET=", options_.socket,
                       ": no agent accepted the connection in time"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<WorldView> Participant::WaitEntered(Duration patience) {
  Time deadline = Now() + patience;
  MutexLock lock(&mutex_);
  while (!view_) {
    if (gate_.finished()) return absl::FailedPreconditionError(gate_.reason());
    if (changed_.WaitUntil(&mutex_, deadline) || view_) continue;
    if (!missing_) {
      return absl::DeadlineExceededError(
          absl::StrCat("attach: REWIRE_SOCKET=", options_.socket, ": the agent did not answer"));
    }
    // The agent ends the job when an initial member has ended before the first world.
    REWIRE_WARN(
        "rewireAttach waits until all initial members have attached: %u had not when this member "
        "did (`rewire status` lists them)",
        *missing_);
    deadline = Now() + patience;
  }
  return *view_;
}

WorldView Participant::View() const {
  MutexLock lock(&mutex_);
  return view_.value_or(WorldView{});
}

absl::StatusOr<UniqueIdBytes> Participant::UniqueId(const std::string& name) {
  const WorldView view = View();
  if (!view.slot)
    return absl::FailedPreconditionError(
        absl::StrCat("unique id for '", name, "': this member is not in the world"));
  std::vector<WorldMember> asked = view.world.members;
  std::erase_if(asked, [&](const WorldMember& m) { return m.member == options_.member; });
  asked.insert(asked.end(), view.leaving.begin(), view.leaving.end());
  const bool mints = *view.slot == 0 && !view.joining;
  return names_.Resolve(
      name, asked, mints ? MintUniqueId : Names::Minter{}, Now() + options_.build, [&] {
        if (!gate_.broken()) return absl::OkStatus();
        return absl::UnavailableError(
            absl::StrCat("unique id for '", name, "': a member was lost meanwhile"));
      });
}

absl::StatusOr<BoundaryResult> Participant::PassBoundary() {
  BoundaryResult result;
  updates_ = gate_.version();
  if (absl::Status s = SetReady(); !s.ok()) {
    gate_.Withdraw();
    return s;
  }
  for (;;) {
    if (!snapshots_.started() && MayStartSnapshots()) {
      if (absl::Status s = CheckNeighbour(); !s.ok()) {
        gate_.Withdraw();
        return s;
      }
      StartSnapshots();
    }
    // Set before RunDiscards(): a discard that arrives later sets the attention again.
    gate_.SetAttention(snapshots_.InBackground());
    state_.RunDiscards();
    snapshots_.CopyLeftOut(updates_);
    // The state may change only after the copy of the old state is taken.
    snapshots_.AwaitCopies(updates_);
    switch (gate_.AfterStop()) {
      case UpdateGate::Stop::kNone:
        // The transition may have been called off since, and a loss may cut this copy short. The
        // update begins when this function returns.
        if (snapshots_.CopyLeftOut(updates_)) continue;
        return result;
      case UpdateGate::Stop::kFinished:
        return absl::DataLossError(gate_.reason());
      case UpdateGate::Stop::kSwap:
        REWIRE_RETURN_IF_ERROR(SwapPending());
        continue;
      case UpdateGate::Stop::kAwaitResume:
        break;
    }
    absl::StatusOr<BoundaryResult> stood = AwaitResume(options_.LongestDecision());
    if (!stood.ok()) return stood;
    result.pause_ns += stood->pause_ns;
    if (stood->kind == ResumeKind::kContinue) continue;
    result.kind = stood->kind;
    result.bytes_in += stood->bytes_in;
    result.bytes_out += stood->bytes_out;
    if (result.kind != ResumeKind::kWorldChanged) return result;
  }
}

absl::Status Participant::SetReady() {
  const WorldView view = View();
  return state_.SetReady(static_cast<uint32_t>(view.world.members.size()), view.slot.value_or(0),
                         &names_);
}

absl::Status Participant::SwapPending() {
  bool late = false;
  const Duration longest = options_.LongestDecision();
  const Epoch epoch = gate_.AwaitSwap(longest, &late);
  if (late) {
    return absl::DeadlineExceededError(
        absl::StrCat("wait for a swap at the update boundary: no decision after ",
                     ToMilliseconds(longest), " ms (REWIRE_BUILD_MS, REWIRE_BOUNDARY_MS)"));
  }
  Communicators* const comms = GetCommunicators();
  if (epoch == 0) return absl::OkStatus();
  if (comms != nullptr) comms->SwapPending(epoch);
  gate_.EndSwap();
  return absl::OkStatus();
}

absl::StatusOr<BoundaryResult> Participant::Recover() {
  // A hanging peer counts as lost after REWIRE_SILENCE_MS, and an agent that was killed or stopped
  // must come back first.
  if (!gate_.WaitBroken(options_.silence + options_.boundary)) {
    return absl::UnavailableError(
        "recover: no loss was reported within REWIRE_SILENCE_MS + REWIRE_BOUNDARY_MS: the error "
        "has another cause than a lost member");
  }
  updates_ = gate_.version();
  REWIRE_RETURN_IF_ERROR(SetReady());
  for (;;) {
    state_.RunDiscards();
    if (gate_.finished()) return absl::DataLossError(gate_.reason());
    auto stood = AwaitResume(options_.LongestRecovery());
    if (!stood.ok() || stood->kind != ResumeKind::kContinue) return stood;
  }
}

absl::StatusOr<BoundaryResult> Participant::AwaitResume(Duration longest) {
  const Time begin = Now();
  const bool joining = View().joining;
  gate_.PrepareStand();
  standing_ = true;
  inbox_->Post([this](Member* m, Time now, Member::Out* out) {
    if (standing_ && !Adopting()) m->OnBoundary(now, Describe(), out);
  });
  const std::optional<ResumeKind> resumed = gate_.AwaitResume(longest);
  standing_ = false;
  if (!resumed) {
    if (gate_.finished()) return absl::DataLossError(gate_.reason());
    return absl::DeadlineExceededError(
        absl::StrCat("wait at the update boundary: no decision after ", ToMilliseconds(longest),
                     " ms (REWIRE_BUILD_MS, REWIRE_BOUNDARY_MS)"));
  }
  BoundaryResult result;
  result.kind = *resumed;
  const Time decided = Now();
  if (result.kind != ResumeKind::kContinue) TakeAdoption(&result);
  result.pause_ns = static_cast<uint64_t>(ToNanoseconds(Now() - begin));
  REWIRE_DEBUG("waited %.1f ms for the decision, adopted in %.1f ms",
               static_cast<double>(ToNanoseconds(decided - begin)) / 1e6,
               static_cast<double>(ToNanoseconds(Now() - decided)) / 1e6);
  if (result.kind == ResumeKind::kWorldChanged || result.kind == ResumeKind::kRepeat) {
    inbox_->Post(
        [epoch = View().world.epoch, pause = joining ? 0 : result.pause_ns](
            Member* m, Time now, Member::Out* out) { m->OnEntered(now, epoch, pause, out); });
  }
  return result;
}

bool Participant::Adopting() const {
  MutexLock lock(&mutex_);
  return adopting_;
}

std::optional<ProgramState> Participant::WaitState(Time deadline) {
  {
    MutexLock lock(&mutex_);
    while (adopting_) {
      if (!changed_.WaitUntil(&mutex_, deadline) && adopting_) return std::nullopt;
    }
  }
  std::optional<ProgramState> state = state_.WaitReady(deadline);
  if (state) state->joining = View().joining;
  return state;
}

void Participant::TakeAdoption(BoundaryResult* result) {
  std::optional<Adoption> adoption;
  WorldView view;
  {
    MutexLock lock(&mutex_);
    adoption.swap(adoption_);
    view = *view_;
  }
  const absl::Cleanup adopted = [&] {
    MutexLock lock(&mutex_);
    adopting_ = false;
    changed_.NotifyAll();
  };
  if (!adoption) return;
  Reshape* const reshape = adoption->reshape.get();
  // The reshape ends on the member's thread, because joining its thread and releasing its memory
  // would delay a step and enters CUDA contexts.
  const absl::Cleanup end_elsewhere = [&] {
    inbox_->Post([ended = std::move(adoption->reshape)](Member*, Time, Member::Out*) {});
  };
  if (reshape != nullptr) {
    result->bytes_in = reshape->bytes_in();
    result->bytes_out = reshape->bytes_out();
  }
  if (!adoption->slot) return;
  if (reshape != nullptr) {
    AdoptParts(reshape);
    state_.EnterWorld(reshape->next_layout(), *adoption->slot);
  }
  // A joiner has received the number with the state. A member's own number is the same, unless the
  // state was restored.
  if (adoption->kind == TransitionKind::kLoss && reshape != nullptr) {
    updates_ = reshape->restored_version();
  }
  gate_.SetVersion(updates_);
  const rewireCallbacks_t callbacks = state_.callbacks();
  if (callbacks.on_world != nullptr) {
    const rewireWorld_t world = {sizeof(rewireWorld_t),
                                 view.world.epoch,
                                 static_cast<uint32_t>(view.world.members.size()),
                                 *view.slot,
                                 options_.member,
                                 0};
    callbacks.on_world(callbacks.arg, &world);
  }
  snapshots_.ForgetLeftOut();
  StartSnapshots(reshape == nullptr ? state::SnapshotSlots::Memory{}
                                    : reshape->TakeSnapshotMemory());
  if (result->kind == ResumeKind::kRepeat) {
    // Nothing has changed since the restored version, which is therefore copied at once.
    snapshots_.TakeRestored(updates_);
  } else {
    snapshots_.TakeBeforeUpdate(updates_);
  }
}

void Participant::AdoptParts(Reshape* reshape) {
  const rewireCallbacks_t callbacks = state_.callbacks();
  for (const NewPart& part : reshape->parts()) {
    const state::PlacedTensor tensor = state_.Adopt(part);
    if (callbacks.adopt == nullptr) continue;
    callbacks.adopt(callbacks.arg, tensor.shape.name.c_str(), part.place.data, part.box.begin,
                    part.box.end);
  }
  reshape->Cancel();
}

bool Participant::MayStartSnapshots() const {
  if (gate_.broken() || !state_.HasTensors()) return false;
  MutexLock lock(&mutex_);
  return view_ && !view_->joining && view_->slot;
}

absl::Status Participant::CheckNeighbour() {
  const WorldView view = View();
  const auto slots = static_cast<uint32_t>(view.world.members.size());
  if (neighbour_checked_ || slots < 2 || !view.slot) return absl::OkStatus();
  const World before{view.world.epoch, {view.world.members[(*view.slot + slots - 1) % slots]}};
  // The neighbour may not have entered its world or called its first update yet.
  const Time deadline = Now() + kForNeighbour;
  const auto ended = [this] { return gate_.finished() || gate_.broken(); };
  while (!neighbour_checked_ && Now() < deadline && !ended()) {
    REWIRE_ASSIGN_OR_RETURN(
        neighbour_checked_,
        RegisteredState::CheckShapes(before, options_.member, names_, milliseconds(50), ended));
  }
  return absl::OkStatus();
}

void Participant::StartSnapshots(state::SnapshotSlots::Memory memory) {
  WorldView view;
  Key secret;
  {
    MutexLock lock(&mutex_);
    if (!view_ || !view_->slot) return;
    view = *view_;
    secret = secret_;
  }
  snapshots_.StartWorld(view.world, secret, *view.slot, *state_.layout(), state_.Tensors(),
                        std::move(memory));
}

void Participant::AfterUpdate() {
  updates_ = gate_.version();
  gate_.NotifyVersion();
  snapshots_.Take(updates_);
}

}  // namespace rewire::elastic
