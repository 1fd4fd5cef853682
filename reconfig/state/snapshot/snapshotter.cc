// Takes and sends the copies; see snapshotter.h.
#include "reconfig/state/snapshot/snapshotter.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/short_turns.h"
#include "reconfig/state/snapshot/slot_notes.h"
#include "reconfig/state/stream/notes.h"
#include "reconfig/state/stream/peer_offer.h"
#include "reconfig/state/stream/state_memory.h"

namespace rewire::state {
namespace {

// The bytes copied between two checks of frozen_.
constexpr uint64_t kPartBytes = 8 << 20;

bool KeptWhole(const TensorShape& shape) {
  return shape.change == Change::kVolatile && shape.division == Division::kReplicated;
}

}  // namespace

Snapshotter::Snapshotter(Transport* transport, Budget* budget, Options options)
    : transport_(transport),
      budget_(budget),
      options_(std::move(options)),
      thread_([this] { Run(); }) {}

Snapshotter::~Snapshotter() {
  Freeze();
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

Snapshotter::Shapes Snapshotter::ShapesOf(std::span<const TensorShape> shapes, uint32_t slots,
                                          uint32_t slot) const {
  Shapes out;
  out.sharded = CopiesPieces(shapes);
  const uint32_t before = (slot + slots - 1) % slots;
  for (const TensorShape& t : shapes) {
    const bool copied = KeptWhole(t) || (out.sharded && options_.buddy);
    const bool kept = copied && !KeptWhole(t) && slots > 1;
    out.own.boxes.push_back(copied ? SnapshotPart(t, slots, slot) : Box{});
    out.kept.boxes.push_back(kept ? SnapshotPart(t, slots, before) : Box{});
    out.kept.laid_out.push_back(copied ? SnapshotPart(t, slots, before) : Box{});
    out.own.element_bytes.push_back(t.element_bytes);
  }
  out.own.laid_out = out.own.boxes;
  out.kept.element_bytes = out.own.element_bytes;
  return out;
}

SnapshotSlots::Memory Snapshotter::Reserve(std::span<const TensorShape> shapes, uint32_t slots,
                                           uint32_t slot) const {
  return own_.Reserve(ShapesOf(shapes, slots, slot).own.Room());
}

void Snapshotter::StartWorld(const World& world, const Key& secret, uint32_t slot,
                             std::vector<PlacedTensor> tensors, SnapshotSlots::Memory memory) {
  MutexLock world_lock(&world_mutex_);
  FreezeLocked();
  tensors_ = std::move(tensors);
  const auto slots = static_cast<uint32_t>(world.members.size());
  std::vector<TensorShape> shapes;
  for (const PlacedTensor& t : tensors_) shapes.push_back(t.shape);
  Shapes parts = ShapesOf(shapes, slots, slot);
  sharded_ = parts.sharded;
  boxes_ = parts.own.boxes;
  volatile_.clear();
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].shape.change == Change::kVolatile && !boxes_[t].empty()) volatile_.push_back(t);
  }
  std::vector<SnapshotSlots::Memory> old;
  old.push_back(own_.Reset(std::move(parts.own), std::move(memory)));
  // Mapped memory belongs to the world before. Own memory is allocated when bytes come.
  old.push_back(kept_.Reset(std::move(parts.kept), {}, SnapshotSlots::Keep::kNothing));
  {
    MutexLock lock(&mutex_);
    std::move(old.begin(), old.end(), std::back_inserter(old_));
  }
  offered_ = mapped_ = false;
  has_next_ = options_.buddy && sharded_ && slots > 1;
  if (world.epoch != key_.epoch) failed_ = false;
  if (has_next_) {
    next_ = world.members[(slot + 1) % slots];
    previous_ = world.members[(slot + slots - 1) % slots];
    key_ = {Purpose::kSnapshot, world.epoch, secret};
  }
  frozen_ = false;
  if (has_next_) transport_->Open(key_, {previous_}, this);
}

void Snapshotter::Freeze() {
  MutexLock lock(&world_mutex_);
  FreezeLocked();
}

void Snapshotter::FreezeLocked() {
  if (frozen_.exchange(true)) return;
  // The thread checks frozen_ after every piece, and the closed stream ends its waits. Before that
  // check the thread may send, or open the stream again, so the stream is closed until the thread
  // is idle.
  for (bool busy = true; busy;) {
    if (has_next_) transport_->Close(key_);
    MutexLock lock(&mutex_);
    asked_ = false;
    if (busy_) changed_.WaitUntil(&mutex_, Now() + milliseconds(20));
    busy = busy_;
  }
  if (has_next_) transport_->Close(key_);
}

absl::Status Snapshotter::CopyPiece(uint32_t tensor, uint64_t version, StateMemory* memory) {
  const PlacedTensor& t = tensors_[tensor];
  if (absl::Status s = CheckAllocation(t.shape.name, t.place, t.allocation); !s.ok()) return s;
  const uint64_t begin = boxes_[tensor].begin * t.shape.element_bytes;
  const uint64_t end = boxes_[tensor].end * t.shape.element_bytes;
  for (uint64_t at = begin; at < end; at += kPartBytes) {
    if (frozen_ && sharded_) return absl::CancelledError("the world is changing");
    const uint64_t n = std::min(kPartBytes, end - at);
    const absl::StatusOr<char*> room = own_.Room(version, tensor, at, n);
    if (!room.ok()) return room.status();
    const StatePlace from = t.place.At(at - t.part.begin * t.shape.element_bytes);
    uint64_t content = 0;
    absl::Status s = memory->CopyHashed(from, {MemoryKind::kHost, *room, nullptr}, n, at, &content);
    if (s.ok()) s = own_.Add(version, tensor, at, n, content);
    if (!s.ok()) return s;
    bytes_copied_ += n;
  }
  return absl::OkStatus();
}

absl::Status Snapshotter::BeginVersion(uint64_t version, bool streamed) {
  if (frozen_ && sharded_) return absl::OkStatus();
  for (const uint32_t t : volatile_) {
    if (absl::Status s = CopyPiece(t, version, &program_memory_); !s.ok()) return s;
  }
  if (!streamed) CopyRest(version);
  return absl::OkStatus();
}

void Snapshotter::CopyRest(uint64_t version) {
  if (frozen_ || !InBackground()) return;
  MutexLock lock(&mutex_);
  asked_ = true;
  version_ = version;
  changed_.NotifyAll();
}

void Snapshotter::FreeLater(SnapshotSlots::Memory memory) {
  MutexLock lock(&mutex_);
  old_.push_back(std::move(memory));
}

bool Snapshotter::WaitTaken(Time deadline) {
  MutexLock lock(&mutex_);
  while (asked_ || busy_) {
    if (!changed_.WaitUntil(&mutex_, deadline) && (asked_ || busy_)) return false;
  }
  return true;
}

std::vector<uint64_t> Snapshotter::OwnVersions() const {
  if (sharded_ && !options_.buddy) return {};
  return own_.WholeVersions();
}

std::vector<uint64_t> Snapshotter::BuddyVersions() const {
  return kept_.bytes() == 0 ? std::vector<uint64_t>{} : kept_.WholeVersions();
}

absl::Status Snapshotter::Take(MemberId /*sender*/, const FragmentHeader& header,
                               std::span<const char> bytes) {
  if (frozen_) {
    return absl::FailedPreconditionError(
        absl::StrCat("snapshot: version=", header.version, ": no snapshots during a transition"));
  }
  if (header.tensor == static_cast<uint32_t>(NoteKind::kMemory)) return TakeMemory(bytes);
  if (header.tensor == static_cast<uint32_t>(NoteKind::kParts)) return TakeParts(bytes);
  return kept_.Put(header.version, header.tensor, header.offset, bytes, header.content);
}

void Snapshotter::OfferMemory() {
  if (offered_ || !options_.node_of) return;
  const std::string node = options_.node_of(next_);
  if (node.empty()) return;  // unknown now; asked again with the next version
  offered_ = true;
  if (node != NodeIdentity()) return;
  const absl::StatusOr<std::vector<int>> fds = own_.Share();
  if (!fds.ok()) return;
  const SharedSnapshots shared{getpid(), {(*fds)[0], (*fds)[1]}};
  Outflow outflow(key_, transport_, budget_);
  const Time deadline = Now() + options_.stall;
  absl::Status status =
      outflow.SendNote(next_, NoteKind::kMemory, EncodeSharedSnapshots(shared), deadline);
  if (status.ok()) status = outflow.WaitPlaced(deadline);
  mapped_ = status.ok();
  if (mapped_) return;
  // Unanswered fragments still refer to `outflow`, and a stream that has failed stays failed.
  transport_->Close(key_);
  if (!frozen_) transport_->Open(key_, {previous_}, this);
}

absl::Status Snapshotter::TakeMemory(std::span<const char> bytes) {
  const auto shared = DecodeSharedSnapshots({bytes.data(), bytes.size()});
  if (!shared.ok()) return shared.status();
  return kept_.MapOf(shared->owner, shared->descriptors);
}

absl::Status Snapshotter::SendParts(uint64_t version, Outflow* outflow) {
  uint32_t index = 0;
  std::vector<ListedPart> parts = own_.List(version, &index);
  std::erase_if(parts, [&](const auto& p) { return KeptWhole(tensors_[p.tensor].shape); });
  for (size_t first = 0; first < parts.size(); first += kMostListedParts) {
    const size_t count = std::min(kMostListedParts, parts.size() - first);
    const absl::Status s =
        outflow->SendNote(next_, NoteKind::kParts,
                          EncodePartList(version, index, std::span(parts).subspan(first, count)),
                          Now() + options_.stall);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Snapshotter::TakeParts(std::span<const char> bytes) {
  const auto list = DecodePartList({bytes.data(), bytes.size()});
  if (!list.ok()) return list.status();
  return kept_.TakeList(list->version, list->index, list->parts);
}

void Snapshotter::Corrupted(MemberId sender, const FragmentHeader& header) {
  REWIRE_WARN("snapshot: tensor=%u version=%llu: corrupted fragment from member %u", header.tensor,
              static_cast<unsigned long long>(header.version), sender);
}

absl::Status Snapshotter::CopyOwn(uint64_t version, StateMemory* memory) {
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].shape.change != Change::kConstant) continue;
    if (absl::Status s = CopyPiece(t, version, memory); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// A next slot that has detached or is cut off costs the program one wait, not one per version.
bool Snapshotter::NextAnswers() {
  if (!failed_ || !options_.answers) return true;
  if (Now() < ask_again_) return false;
  if (options_.answers(next_)) return true;
  ask_again_ = Now() + options_.stall;
  return false;
}

absl::Status Snapshotter::SendToBuddy(uint64_t version) {
  OfferMemory();
  if (frozen_) return absl::CancelledError("the world is changing");
  std::vector<Outgoing> outgoing;
  for (uint32_t t = 0; t < tensors_.size() && !mapped_; ++t) {
    const TensorShape& shape = tensors_[t].shape;
    if (KeptWhole(shape) || boxes_[t].empty()) continue;
    Outgoing out;
    out.tensor = t;
    out.begin = boxes_[t].begin * shape.element_bytes;
    out.end = boxes_[t].end * shape.element_bytes;
    // This thread alone writes to the piece, and only after the send.
    out.source.data = const_cast<char*>(own_.Piece(version, t));
    out.target = next_;
    out.stays = true;
    outgoing.push_back(out);
  }
  Outflow outflow(key_, transport_, budget_);
  absl::Status status = mapped_ ? SendParts(version, &outflow)
                                : outflow.Send(outgoing, version, false, Now() + options_.stall);
  if (status.ok()) status = outflow.WaitPlaced(Now() + options_.stall);
  bytes_sent_ += outflow.bytes_on_wire();
  // Fragments on the wire refer to `outflow`.
  if (!status.ok()) transport_->Close(key_);
  // The next slot may have dropped its mapping, so the memory is offered again.
  if (!status.ok() && mapped_) offered_ = mapped_ = false;
  return status;
}

void Snapshotter::Run() {
  pthread_setname_np(pthread_self(), "rewire-snap");
  setpriority(PRIO_PROCESS, 0, 10);
  TakeShortTurns();
  StateMemory memory;  // this thread creates and destroys the driver's objects
  for (;;) {
    uint64_t version = 0;
    std::vector<SnapshotSlots::Memory> old;
    {
      MutexLock lock(&mutex_);
      busy_ = false;
      changed_.NotifyAll();
      old.swap(old_);
    }
    old.clear();  // no thread waits for this
    {
      MutexLock lock(&mutex_);
      while (!asked_ && !stop_) changed_.WaitUntil(&mutex_, Now() + seconds(3600));
      if (stop_) return;
      asked_ = false;
      busy_ = true;
      version = version_;
    }
    absl::Status status = CopyOwn(version, &memory);
    if (status.ok() && has_next_ && NextAnswers()) {
      status = SendToBuddy(version);
      failed_ = !status.ok();
      if (!status.ok() && !frozen_) transport_->Open(key_, {previous_}, this);
    }
    if (!status.ok() && !frozen_) {
      REWIRE_WARN("snapshot: version=%llu: no copy at member %u: %s",
                  static_cast<unsigned long long>(version), next_.member,
                  std::string(status.message()).c_str());
    }
  }
}

}  // namespace rewire::state
