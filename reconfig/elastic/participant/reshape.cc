// Prepares and streams the state of one transition; see reshape.h.
#include "reconfig/elastic/participant/reshape.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/base/log.h"
#include "reconfig/base/short_turns.h"

namespace rewire::elastic {
namespace {

// The limit of a wait that the leader ends by a decision or by ending the transition.
constexpr Duration kLongest = seconds(3600);
// The limit for sharing memory with one source on this node. A source that exceeds it sends bytes.
constexpr Duration kShare = seconds(5);

// Returns the address of an element in the old part, or its address if the part reached that far.
state::StatePlace PlaceOf(const state::PlacedTensor& tensor, uint64_t element) {
  state::StatePlace place = tensor.place;
  place.data += (static_cast<int64_t>(element) - static_cast<int64_t>(tensor.part.begin)) *
                static_cast<int64_t>(tensor.shape.element_bytes);
  return place;
}

}  // namespace

Reshape::Reshape(ReshapeContext context, MakePlan request)
    : context_(std::move(context)),
      request_(std::move(request)),
      key_{state::Purpose::kTransition, request_.epoch, request_.secret},
      outflow_(std::make_unique<state::Outflow>(key_, context_.transport, context_.budget)),
      pull_(std::make_unique<state::Pull>(&notes_)) {
  thread_ = std::thread([this] { Run(); });
}

Reshape::~Reshape() {
  Cancel();
  thread_.join();
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

void Reshape::Restore(uint64_t version, RestoreSources sources) {
  MutexLock lock(&mutex_);
  restore_ = true;
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
  outflow_->Cancel();
  pull_->Cancel();
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
  // its priority again, so preparation runs on its own thread.
  std::thread prepare([&] {
    pthread_setname_np(pthread_self(), "rewire-prepare");
    setpriority(PRIO_PROCESS, 0, 10);
    TakeShortTurns();
    hash = MakeThePlan();
  });
  prepare.join();
  TakeShortTurns();
  for (const state::PlacedTensor& t : state_.tensors) {
    if (!hash.ok() || t.place.kind != state::MemoryKind::kDevice) continue;
    absl::Status warm = outflow_->WarmDevice(t.place.context);
    if (warm.ok()) warm = pull_->WarmDevice(t.place.context);
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

absl::StatusOr<uint64_t> Reshape::MakeThePlan() {
  const Time deadline = Now() + context_.build;
  std::optional<ReshapeContext::State> state;
  while (!(state = context_.wait_state(Now() + milliseconds(50)))) {
    if (Cancelled()) return absl::CancelledError("the transition was aborted");
    if (Now() >= deadline) {
      return absl::DeadlineExceededError(
          "plan: the program did not call its first rewireUpdate() within REWIRE_BUILD_MS");
    }
  }
  state_ = std::move(*state);
  for (const state::PlacedTensor& t : state_.tensors) shapes_.push_back(t.shape);
  if (absl::Status s = context_.check_shapes(); !s.ok()) return s;
  if (absl::Status s = Allocate(); !s.ok()) return s;
  ReserveSnapshots();
  if (request_.kind == TransitionKind::kLoss) {
    return state::PlanHash(shapes_, request_.from, request_.to, state::Plan{});
  }
  absl::StatusOr<state::Plan> plan = state::PlanChange(shapes_, request_.from, request_.to);
  if (!plan.ok()) return plan.status();
  if (absl::Status s = Resolve(*plan); !s.ok()) return s;
  if (absl::Status s = OpenStream(); !s.ok()) return s;
  PublishOffer();
  if (context_.peer_copy) {
    if (absl::Status s = SharePeers(); !s.ok()) return s;
  }
  if (std::any_of(outgoing_.begin(), outgoing_.end(),
                  [](const state::Outgoing& o) { return !o.local; })) {
    outflow_->Warm();
  }
  return state::PlanHash(shapes_, request_.from, request_.to, *plan);
}

bool Reshape::InPlace(uint32_t tensor, const state::Box& box) const {
  const state::PlacedTensor& now = state_.tensors[tensor];
  const rewireCallbacks_t& program = state_.callbacks;
  return program.in_place != nullptr && now.shape.change == state::Change::kConstant &&
         now.place.data != nullptr &&
         program.in_place(program.arg, now.shape.name.c_str(), box.begin, box.end) != 0;
}

absl::Status Reshape::TouchAround(const state::PlacedTensor& now, const state::Box& box) {
  const state::Box before{box.begin, std::min(box.end, now.part.begin)};
  const state::Box behind{std::max(box.begin, now.part.end), box.end};
  for (const state::Box& fresh : {before, behind}) {
    const absl::Status s = Touch(PlaceOf(now, fresh.begin), fresh.size() * now.shape.element_bytes);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Reshape::Allocate() {
  const std::optional<uint32_t> slot = request_.to.SlotOf(context_.self);
  const auto slots = static_cast<uint32_t>(request_.to.members.size());
  for (uint32_t t = 0; t < state_.tensors.size(); ++t) {
    const state::PlacedTensor& now = state_.tensors[t];
    targets_.push_back(now.place);
    if (!slot) continue;
    const state::Box box = state::PartOf(now.shape, slots, *slot);
    if (box == now.part) continue;
    if (Cancelled()) return absl::CancelledError("the transition was aborted");
    const uint64_t bytes = box.size() * now.shape.element_bytes;
    if (InPlace(t, box)) {
      targets_[t] = PlaceOf(now, box.begin);
      parts_.push_back({t, box, targets_[t]});
      if (absl::Status s = TouchAround(now, box); !s.ok()) return s;
      continue;
    }
    state::StatePlace place = now.place;
    place.data = nullptr;
    if (bytes > 0) {
      if (state_.callbacks.allocate == nullptr) {
        return absl::FailedPreconditionError(
            absl::StrCat("tensor ", now.shape.name,
                         ": sharded, but no allocate callback was given to rewireSetParallel()"));
      }
      place.data = static_cast<char*>(
          state_.callbacks.allocate(state_.callbacks.arg, now.shape.name.c_str(), bytes));
      if (place.data == nullptr) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "tensor ", now.shape.name, ": the allocate callback returned NULL for the new part of ",
            bytes, " bytes"));
      }
    }
    parts_.push_back({t, box, place});
    targets_[t] = place;
    if (absl::Status s = Touch(place, bytes); !s.ok()) return s;
  }
  return absl::OkStatus();
}

void Reshape::ReserveSnapshots() {
  const std::optional<uint32_t> slot = request_.to.SlotOf(context_.self);
  if (!slot) return;
  snapshot_memory_ = context_.snapshots->Reserve(
      shapes_, static_cast<uint32_t>(request_.to.members.size()), *slot);
}

absl::Status Reshape::Touch(const state::StatePlace& place, uint64_t bytes) {
  constexpr uint64_t kTurn = 16 << 20;
  for (uint64_t at = 0; at < bytes; at += kTurn) {
    if (Cancelled()) return absl::CancelledError("the transition was aborted");
    const absl::Status s = memory_.Clear(place.At(at), std::min(kTurn, bytes - at));
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<state::StatePlace> Reshape::SourceOf(const state::BoxCopy& copy) const {
  const state::PlacedTensor& t = state_.tensors[copy.tensor];
  const uint64_t size = t.shape.element_bytes;
  if (copy.origin == state::Origin::kLive)
    return t.place.At((copy.box.begin - t.part.begin) * size);
  const state::SnapshotSlots& slots = copy.origin == state::Origin::kOwnSnapshot
                                          ? context_.snapshots->own()
                                          : context_.snapshots->kept();
  const char* piece = slots.Piece(version_, copy.tensor);
  const state::Box box = slots.PieceBox(copy.tensor);
  if (piece == nullptr || !box.Contains(copy.box)) {
    return absl::DataLossError(absl::StrCat("restore tensor ", t.shape.name, " elements [",
                                            copy.box.begin, ", ", copy.box.end,
                                            "): no snapshot of version ", version_));
  }
  return state::StatePlace{state::MemoryKind::kHost, const_cast<char*>(piece), nullptr}.At(
      (copy.box.begin - box.begin) * size);
}

absl::Status Reshape::Resolve(const state::Plan& plan) {
  const std::optional<uint32_t> slot = request_.to.SlotOf(context_.self);
  const auto slots = static_cast<uint32_t>(request_.to.members.size());
  for (const state::BoxCopy& copy : plan.copies) {
    if (copy.source != context_.self && copy.target != context_.self) continue;
    const state::TensorShape& shape = shapes_[copy.tensor];
    const uint64_t begin = copy.box.begin * shape.element_bytes;
    const uint64_t end = copy.box.end * shape.element_bytes;
    state::StatePlace place;
    if (copy.target == context_.self) {
      const state::Box part = state::PartOf(shape, slots, *slot);
      place = targets_[copy.tensor].At((copy.box.begin - part.begin) * shape.element_bytes);
      if (!copy.local()) {
        const bool late = shape.change != state::Change::kConstant;
        incoming_.push_back({copy.tensor, begin, end, copy.source, place, late});
        continue;
      }
    }
    absl::StatusOr<state::StatePlace> source = SourceOf(copy);
    if (!source.ok()) return source.status();
    if (copy.local() && source->data == place.data) continue;  // the part stays at its address
    state::Outgoing out;
    out.tensor = copy.tensor;
    out.begin = begin;
    out.end = end;
    out.source = *source;
    out.local = copy.local();
    out.place = place;
    if (!out.local) out.target = request_.to.members[*request_.to.SlotOf(copy.target)];
    outgoing_.push_back(out);
  }
  return absl::OkStatus();
}

absl::Status Reshape::OpenStream() {
  state::TensorNames names;
  for (const state::TensorShape& shape : shapes_) names.push_back(shape.name);
  outflow_->SetNames(names);
  pull_->SetNames(names);
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

void Reshape::PublishOffer() {
  // An offer without tensors is also published, so that no target waits for an offer.
  const bool shares = context_.peer_copy && !state_.joining;
  for (uint32_t t = 0; t < state_.tensors.size() && shares; ++t) {
    const state::PlacedTensor& tensor = state_.tensors[t];
    const uint64_t bytes = tensor.part.size() * tensor.shape.element_bytes;
    const absl::Status s = offered_.Add(t, tensor.place, bytes);
    if (!s.ok() && bytes > 0) {
      REWIRE_DEBUG("tensor %s is not shared inside the node: %s", tensor.shape.name.c_str(),
                   std::string(s.message()).c_str());
    }
  }
  if (!Cancelled())
    context_.publish_offer(state::EncodePeerOffer(offered_.Publish(request_.epoch)));
}

state::PeerOffer Reshape::OfferOf(const WorldMember& source) {
  const Time deadline = Now() + context_.build;
  while (!Cancelled() && Now() < deadline) {
    const absl::StatusOr<std::string> answer = context_.ask_offer(source);
    if (!answer.ok()) break;
    // An empty answer means that the source has not published an offer yet.
    if (!answer->empty()) {
      absl::StatusOr<state::PeerOffer> offer = state::DecodePeerOffer(*answer);
      if (!offer.ok()) {
        REWIRE_WARN("member %u: %s", source.member, std::string(offer.status().message()).c_str());
        break;
      }
      if (offer->epoch == request_.epoch) return *std::move(offer);
    }
    MutexLock lock(&mutex_);
    changed_.WaitUntil(&mutex_, Now() + milliseconds(5));
  }
  return {};
}

absl::Status Reshape::SharePeers() {
  std::set<MemberId> sources;
  for (const state::Incoming& in : incoming_) {
    if (in.place.kind == state::MemoryKind::kDevice) sources.insert(in.source);
  }
  const std::string node = state::NodeIdentity();
  const auto slots = static_cast<uint32_t>(request_.from.members.size());
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const WorldMember& source = request_.from.members[slot];
    if (!sources.contains(source.member)) continue;
    const state::PeerOffer offer = OfferOf(source);
    if (offer.node.empty() || offer.node != node) continue;
    std::vector<uint64_t> begins;
    for (const state::TensorShape& shape : shapes_) {
      begins.push_back(state::PartOf(shape, slots, slot).begin * shape.element_bytes);
    }
    pull_->TakeFrom(source.member, offer, begins, incoming_, Now() + kShare);
  }
  const Time deadline = Now() + context_.build;
  for (const WorldMember& source : request_.from.members) {
    const std::vector<uint32_t> tensors = pull_->TensorsOf(source.member);
    if (tensors.empty()) continue;
    intake_->Withdraw(source.member, tensors);
    const absl::Status s =
        outflow_->SendNote(source, state::NoteKind::kPull, state::EncodeTensors(tensors), deadline);
    if (!s.ok()) return s;
  }
  // The sources must have the notes before this member reports that it is prepared.
  return outflow_->WaitPlaced(deadline);
}

}  // namespace rewire::elastic
