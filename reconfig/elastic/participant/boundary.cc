// The program's thread at the update boundary; see participant.h. Owned by the program's thread.
#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/running_clock.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/elastic/participant/participant.h"
#include "reconfig/elastic/participant/shape_list.h"
#include "reconfig/state/stream/ask_name.h"
#include "reconfig/state/stream/state_memory.h"

namespace rewire::elastic {
namespace {

// Names under which a member publishes its own facts. No program's name begins with a zero byte.
constexpr std::string_view kShapesName{"\0shapes", 7};
constexpr std::string_view kNodeName{"\0node", 5};
// The number of applied updates, transferred like any other state.
constexpr const char* kUpdatesTensor = "rewire/updates";

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

absl::StatusOr<WorldView> Participant::WaitEntered(Time deadline) {
  MutexLock lock(&mutex_);
  while (!view_) {
    if (gate_.finished()) return absl::FailedPreconditionError(gate_.reason());
    if (!changed_.WaitUntil(&mutex_, deadline) && !view_) {
      return absl::DeadlineExceededError(
          absl::StrCat("attach: REWIRE_SOCKET=", options_.socket, ": the agent did not answer"));
    }
  }
  return *view_;
}

WorldView Participant::View() const {
  MutexLock lock(&mutex_);
  return view_.value_or(WorldView{});
}

absl::StatusOr<UniqueIdBytes> Participant::UniqueId(const std::string& name) {
  const WorldView view = View();
  Key secret;
  {
    MutexLock lock(&mutex_);
    secret = names_key_;
  }
  if (!view.slot)
    return absl::FailedPreconditionError(
        absl::StrCat("unique id for '", name, "': this member is not in the world"));
  const WorldMember self = {options_.member, incarnation_, ""};
  std::vector<WorldMember> asked = view.world.members;
  std::erase_if(asked, [&](const WorldMember& m) { return m.member == self.member; });
  asked.insert(asked.end(), view.leaving.begin(), view.leaving.end());
  const bool mints = *view.slot == 0 && !view.joining;
  return names_.Resolve(name, asked, self, secret, mints ? MintUniqueId : Names::Minter{},
                        Now() + options_.build);
}

void Participant::SetCallbacks(const rewireCallbacks_t& callbacks) {
  MutexLock lock(&mutex_);
  callbacks_ = callbacks;
}

void Participant::AddTensor(state::PlacedTensor tensor) {
  MutexLock lock(&mutex_);
  if (tensors_.empty()) {
    state::PlacedTensor updates;
    // After a loss the tensor holds the restored version.
    updates.shape = {kUpdatesTensor, 1, sizeof updates_, state::Division::kReplicated,
                     state::Change::kTransient};
    updates.part = {0, 1};
    updates.place.data = reinterpret_cast<char*>(&updates_);
    tensors_.push_back(updates);
  }
  tensors_.push_back(std::move(tensor));
}

void Participant::Ready() {
  MutexLock lock(&mutex_);
  if (ready_) return;
  ready_ = true;
  std::vector<state::TensorShape> shapes;
  for (const state::PlacedTensor& t : tensors_) shapes.push_back(t.shape);
  names_.Publish(std::string(kShapesName), EncodeShapes(shapes));
  names_.Publish(std::string(kNodeName), state::NodeIdentity());
  changed_.NotifyAll();
}

std::optional<ReshapeContext::State> Participant::WaitReady(Time deadline) {
  MutexLock lock(&mutex_);
  while (!ready_) {
    if (!changed_.WaitUntil(&mutex_, deadline) && !ready_) return std::nullopt;
  }
  return ReshapeContext::State{view_ && view_->joining, tensors_, callbacks_};
}

std::vector<state::PlacedTensor> Participant::Tensors() const {
  MutexLock lock(&mutex_);
  return tensors_;
}

absl::StatusOr<std::optional<std::string>> Participant::Ask(const WorldMember& member,
                                                            std::string_view name,
                                                            Duration within) const {
  Key secret;
  {
    MutexLock lock(&mutex_);
    secret = names_key_;
  }
  const WorldMember self = {options_.member, incarnation_, ""};
  return state::AskName(member, secret, self, name, Now() + within);
}

std::string Participant::NodeOf(const WorldMember& member) const {
  // The timeout is short, because a thread that must stop at once waits for this answer.
  const auto answer = Ask(member, kNodeName, milliseconds(200));
  return answer.ok() ? answer->value_or("") : "";
}

absl::Status Participant::CheckAllocations() const {
  for (const state::PlacedTensor& tensor : Tensors()) {
    REWIRE_RETURN_IF_ERROR(
        state::CheckAllocation(tensor.shape.name, tensor.place, tensor.allocation));
  }
  return absl::OkStatus();
}

absl::Status Participant::CheckShapes(const World& from) const {
  std::vector<state::TensorShape> mine;
  if (const auto published = names_.Find(kShapesName)) {
    REWIRE_ASSIGN_OR_RETURN(mine, DecodeShapes(*published));
  }
  if (from.members.empty() || from.members[0].member == options_.member) return absl::OkStatus();
  // The answer of any earlier member is enough. A lost member does not answer, and then the hashes
  // of the plans still differ.
  for (const WorldMember& m : from.members) {
    if (m.member == options_.member || m.data_address.empty()) continue;
    absl::StatusOr<std::optional<std::string>> answer;
    Mutex pause_mutex;
    CondVar pause;
    const Time deadline = Now() + options_.build;
    do {  // a member answers from its first update on
      answer = Ask(m, kShapesName);
      MutexLock lock(&pause_mutex);
      if (answer.ok() && !*answer) pause.WaitUntil(&pause_mutex, Now() + milliseconds(10));
    } while (answer.ok() && !*answer && Now() < deadline && !gate_.finished());
    if (!answer.ok() || !*answer) continue;
    REWIRE_ASSIGN_OR_RETURN(const std::vector<state::TensorShape> theirs, DecodeShapes(**answer));
    for (size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i) {
      if (i < mine.size() && i < theirs.size() && mine[i] == theirs[i]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", i < mine.size() ? mine[i].name : theirs[i].name, " is registered by member ",
          options_.member, " differently from member ", m.member,
          " (order, name, elements, element_bytes, layout and change must be equal)"));
    }
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::StatusOr<BoundaryResult> Participant::PassBoundary() {
  BoundaryResult result;
  updates_ = gate_.version();
  Ready();
  for (;;) {
    bool start_snapshots = false;
    {
      MutexLock lock(&mutex_);
      start_snapshots = view_ && !view_->joining && view_->slot && !snapshots_started_ &&
                        !tensors_.empty() && !gate_.broken();
      snapshots_started_ |= start_snapshots;
    }
    if (start_snapshots) StartSnapshots();
    // Set before RunDiscards(): a discard that arrives later sets the attention again.
    gate_.SetAttention(snapshots_->InBackground());
    RunDiscards();
    CopyLeftOut();
    // The state may change only after the copy of the old state is taken. A copy that takes too
    // long is given up: the next death may then cost more than a step.
    if (!WaitTaken()) {
      REWIRE_WARN("snapshot of version %llu: not complete within REWIRE_SILENCE_MS=%lld ms",
                  static_cast<unsigned long long>(gate_.version()),
                  static_cast<long long>(
                      std::chrono::duration_cast<milliseconds>(options_.silence).count()));
      snapshots_->Freeze();
      MutexLock lock(&mutex_);
      snapshots_started_ = false;
    }
    switch (gate_.AfterStop()) {
      case UpdateGate::Stop::kNone:
        // The transition may have been called off since. The update begins when this function
        // returns.
        CopyLeftOut();
        if (!WaitTaken()) snapshots_->Freeze();
        return result;
      case UpdateGate::Stop::kFinished:
        return absl::FailedPreconditionError(gate_.reason());
      case UpdateGate::Stop::kStand:
        break;
    }
    absl::StatusOr<BoundaryResult> stood = Stand(options_.build + 10 * options_.boundary);
    if (!stood.ok()) return stood;
    result.pause_ns += stood->pause_ns;
    if (stood->kind == ResumeKind::kContinue) continue;
    result.kind = stood->kind;
    result.bytes_in += stood->bytes_in;
    result.bytes_out += stood->bytes_out;
    if (result.kind != ResumeKind::kWorldChanged) return result;
  }
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
  Ready();
  for (;;) {
    RunDiscards();
    if (gate_.finished()) return absl::FailedPreconditionError(gate_.reason());
    auto stood = Stand(options_.silence + options_.build + 10 * options_.boundary);
    if (!stood.ok() || stood->kind != ResumeKind::kContinue) return stood;
  }
}

absl::StatusOr<BoundaryResult> Participant::Stand(Duration longest) {
  const Time begin = Now();
  const bool joining = View().joining;
  gate_.PrepareStand();
  standing_ = true;
  inbox_->Post([this](Member* m, Time now, Member::Out* out) {
    if (standing_) m->OnBoundary(now, Describe(), out);
  });
  const std::optional<ResumeKind> resumed = gate_.Stand(longest);
  standing_ = false;
  if (!resumed) {
    if (gate_.finished()) return absl::FailedPreconditionError(gate_.reason());
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

void Participant::TakeAdoption(BoundaryResult* result) {
  std::optional<Adoption> adoption;
  rewireCallbacks_t callbacks;
  WorldView view;
  {
    MutexLock lock(&mutex_);
    adoption.swap(adoption_);
    callbacks = callbacks_;
    view = *view_;
  }
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
    for (const NewPart& part : reshape->parts()) {
      state::PlacedTensor tensor;
      {
        MutexLock lock(&mutex_);
        tensors_[part.tensor].part = part.box;
        tensors_[part.tensor].place = part.place;
        tensors_[part.tensor].allocation = state::AllocationOf(part.place);
        tensor = tensors_[part.tensor];
      }
      if (callbacks.adopt != nullptr) {
        callbacks.adopt(callbacks.arg, tensor.shape.name.c_str(), part.place.data, part.box.begin,
                        part.box.end);
      }
    }
    reshape->Cancel();
  }
  // A joiner has received the number with the state. A member's own number is the same, unless the
  // state was restored.
  if (adoption->kind == TransitionKind::kLoss && reshape != nullptr) {
    updates_ = reshape->restored_version();
  }
  gate_.SetVersion(updates_);
  if (callbacks.on_world != nullptr) {
    const rewireWorld_t world = {sizeof(rewireWorld_t),
                                 view.world.epoch,
                                 static_cast<uint32_t>(view.world.members.size()),
                                 *view.slot,
                                 options_.member,
                                 0};
    callbacks.on_world(callbacks.arg, &world);
  }
  uncopied_ = kNone;
  StartSnapshots(reshape == nullptr ? state::SnapshotSlots::Memory{}
                                    : reshape->TakeSnapshotMemory());
  if (result->kind == ResumeKind::kRepeat) {
    // Nothing has changed since the restored version, which is therefore copied at once.
    TakeSnapshot();
  } else if (absl::Status s = snapshots_->BeginVersion(updates_, /*streamed=*/true); !s.ok()) {
    // The update that follows changes the constant state. Volatile state already has its copy.
    REWIRE_WARN("no snapshot of version %llu: %s", static_cast<unsigned long long>(updates_),
                std::string(s.message()).c_str());
  }
}

void Participant::StartSnapshots(state::SnapshotSlots::Memory memory) {
  WorldView view;
  Key secret;
  std::vector<state::PlacedTensor> tensors;
  {
    MutexLock lock(&mutex_);
    if (!view_ || !view_->slot) return;
    view = *view_;
    secret = secret_;
    tensors = tensors_;
    snapshots_started_ = true;
  }
  snapshots_->StartWorld(view.world, secret, *view.slot, std::move(tensors), std::move(memory));
  gate_.SetAttention(snapshots_->InBackground());
  gate_.SetSnapshots(snapshots_->InBackground() || snapshots_->CopiesAtOnce());
}

void Participant::TakeSnapshot() {
  const bool streamed = updates_ == streamed_version_.load() && snapshots_->InBackground();
  uncopied_ = streamed ? updates_ : kNone;
  if (absl::Status s = snapshots_->BeginVersion(updates_, streamed); !s.ok()) {
    REWIRE_WARN("no snapshot of version %llu: %s", static_cast<unsigned long long>(updates_),
                std::string(s.message()).c_str());
  }
}

void Participant::CopyLeftOut() {
  if (uncopied_ != updates_ || streamed_version_.load() == updates_) return;
  uncopied_ = kNone;
  snapshots_->CopyRest(updates_);
}

bool Participant::WaitTaken() {
  for (RunningDeadline deadline(options_.silence); !snapshots_->WaitTaken(deadline.NextTurn());) {
    if (deadline.Passed()) return false;
  }
  return true;
}

void Participant::AfterUpdate() {
  updates_ = gate_.version();
  gate_.NotifyVersion();
  TakeSnapshot();
}

void Participant::RunDiscards() {
  std::vector<std::pair<std::string, void*>> discards;
  rewireCallbacks_t callbacks;
  {
    MutexLock lock(&mutex_);
    discards.swap(discards_);
    callbacks = callbacks_;
  }
  if (callbacks.discard == nullptr) return;
  for (const auto& [name, data] : discards) callbacks.discard(callbacks.arg, name.c_str(), data);
}

}  // namespace rewire::elastic
