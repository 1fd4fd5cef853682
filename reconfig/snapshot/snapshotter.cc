// Taking copies; see snapshotter.h.
#include "reconfig/snapshot/snapshotter.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/stream/content.h"

namespace rewire {
namespace {

bool KeptWhole(const TensorShape& shape) {
  return shape.change == Change::kVolatile && shape.division == Division::kReplicated;
}

}  // namespace

Snapshotter::Snapshotter(Transport* transport, Budget* budget, bool buddy, Duration stall)
    : transport_(transport), budget_(budget), buddy_(buddy), stall_(stall), thread_([this] {
        Run();
      }) {}

Snapshotter::~Snapshotter() {
  Freeze();
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

Snapshotter::Boxes Snapshotter::BoxesOf(std::span<const TensorShape> shapes, uint32_t slots,
                                        uint32_t slot) const {
  Boxes boxes;
  boxes.sharded = std::any_of(shapes.begin(), shapes.end(), [](const TensorShape& t) {
    return t.division == Division::kSharded && t.change != Change::kTransient;
  });
  for (const TensorShape& t : shapes) {
    const bool copied = KeptWhole(t) || (boxes.sharded && buddy_);
    boxes.own.push_back(copied ? SnapshotPart(t, slots, slot) : Box{});
    const bool kept = copied && !KeptWhole(t) && slots > 1;
    boxes.kept.push_back(kept ? SnapshotPart(t, slots, (slot + slots - 1) % slots) : Box{});
  }
  return boxes;
}

Snapshotter::Memory Snapshotter::Reserve(std::span<const TensorShape> shapes, uint32_t slots,
                                         uint32_t slot) const {
  const Boxes boxes = BoxesOf(shapes, slots, slot);
  uint64_t own = 0;
  uint64_t kept = 0;
  for (size_t t = 0; t < shapes.size(); ++t) {
    own += boxes.own[t].size() * shapes[t].element_bytes;
    kept += boxes.kept[t].size() * shapes[t].element_bytes;
  }
  return {own_.Reserve(own), kept_.Reserve(kept)};
}

void Snapshotter::StartWorld(const World& world, uint64_t secret, uint32_t slot,
                             std::vector<PlacedTensor> tensors, Memory memory) {
  Freeze();
  tensors_ = std::move(tensors);
  const auto slots = static_cast<uint32_t>(world.members.size());
  std::vector<TensorShape> shapes;
  std::vector<uint32_t> element_bytes;
  for (const PlacedTensor& t : tensors_) {
    shapes.push_back(t.shape);
    element_bytes.push_back(t.shape.element_bytes);
  }
  Boxes boxes = BoxesOf(shapes, slots, slot);
  sharded_ = boxes.sharded;
  boxes_ = boxes.own;
  own_.Reset(std::move(boxes.own), element_bytes, std::move(memory.own));
  kept_.Reset(std::move(boxes.kept), element_bytes, std::move(memory.kept));
  has_next_ = buddy_ && sharded_ && slots > 1;
  if (has_next_) {
    next_ = world.members[(slot + 1) % slots];
    previous_ = world.members[(slot + slots - 1) % slots].member;
    key_ = {Purpose::kSnapshot, world.epoch, secret};
  }
  frozen_ = false;
  if (has_next_) transport_->Open(key_, this);
}

void Snapshotter::Freeze() {
  if (frozen_.exchange(true)) return;
  if (has_next_) transport_->Close(key_);
  {
    MutexLock lock(&mutex_);
    asked_ = false;
    // The thread looks at frozen_ after every fragment, and the closed stream has ended its waits.
    while (busy_) changed_.WaitUntil(&mutex_, Now() + seconds(1));
  }
  // It may have opened the stream again after a failure, just before it saw frozen_.
  if (has_next_) transport_->Close(key_);
}

absl::Status Snapshotter::CopyPiece(uint32_t tensor, uint64_t version, StateMemory* memory) {
  const PlacedTensor& t = tensors_[tensor];
  const uint64_t begin = boxes_[tensor].begin * t.shape.element_bytes;
  const uint64_t end = boxes_[tensor].end * t.shape.element_bytes;
  std::vector<char> bytes;
  for (uint64_t at = begin; at < end; at += kFragmentBytes) {
    if (frozen_) return absl::CancelledError("the world is changing");
    bytes.resize(std::min<uint64_t>(kFragmentBytes, end - at));
    const StatePlace place = t.place.At(at - t.part.begin * t.shape.element_bytes);
    if (absl::Status s = memory->Read(place, bytes.data(), bytes.size()); !s.ok()) return s;
    const uint64_t content = HashContent(bytes.data(), bytes.size(), at);
    if (absl::Status s = own_.Put(version, tensor, at, bytes, content); !s.ok()) return s;
    bytes_copied_ += bytes.size();
  }
  return absl::OkStatus();
}

absl::Status Snapshotter::BeginVersion(uint64_t version) {
  if (frozen_) return absl::OkStatus();
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].shape.change != Change::kVolatile) continue;
    if (absl::Status s = CopyPiece(t, version, &program_memory_); !s.ok()) return s;
  }
  if (!sharded_ || !buddy_) return absl::OkStatus();
  MutexLock lock(&mutex_);
  asked_ = true;
  version_ = version;
  changed_.NotifyAll();
  return absl::OkStatus();
}

bool Snapshotter::WaitTaken(Time deadline) {
  MutexLock lock(&mutex_);
  while (asked_ || busy_) {
    if (!changed_.WaitUntil(&mutex_, deadline) && (asked_ || busy_)) return false;
  }
  return true;
}

std::vector<uint64_t> Snapshotter::OwnVersions() const {
  if (sharded_ && !buddy_) return {};
  return own_.WholeVersions();
}

std::vector<uint64_t> Snapshotter::BuddyVersions() const {
  if (sharded_ && !buddy_) return {};
  // What nobody needs from here can be given at every version.
  return kept_.bytes() == 0 ? own_.WholeVersions() : kept_.WholeVersions();
}

absl::Status Snapshotter::Take(MemberId sender, const FragmentHeader& header,
                               std::span<const char> bytes) {
  if (frozen_ || sender != previous_) {
    return absl::FailedPreconditionError("a snapshot that is not wanted here now");
  }
  return kept_.Put(header.version, header.tensor, header.offset, bytes, header.content);
}

void Snapshotter::Corrupted(MemberId sender, const FragmentHeader& header) {
  REWIRE_WARN("snapshot: a corrupted fragment of tensor %u, version %llu, from member %u",
              header.tensor, static_cast<unsigned long long>(header.version), sender);
}

absl::Status Snapshotter::CopyOwn(uint64_t version, StateMemory* memory) {
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].shape.change != Change::kConstant) continue;
    if (absl::Status s = CopyPiece(t, version, memory); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Snapshotter::SendToBuddy(uint64_t version) {
  std::vector<Outgoing> outgoing;
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    const TensorShape& shape = tensors_[t].shape;
    if (KeptWhole(shape) || boxes_[t].empty()) continue;
    Outgoing out;
    out.tensor = t;
    out.begin = boxes_[t].begin * shape.element_bytes;
    out.end = boxes_[t].end * shape.element_bytes;
    // Not written to while it is being sent: that is done by this thread, after this.
    out.source.data = const_cast<char*>(own_.Piece(version, t));
    out.target = next_;
    out.stays = true;
    outgoing.push_back(out);
  }
  Outflow outflow(key_, transport_, budget_);
  absl::Status status = outflow.Send(outgoing, version, false, Now() + stall_);
  if (status.ok()) status = outflow.WaitPlaced(Now() + stall_);
  bytes_sent_ += outflow.bytes_on_wire();
  // What still is under way refers to `outflow`.
  if (!status.ok()) transport_->Close(key_);
  return status;
}

void Snapshotter::Run() {
  pthread_setname_np(pthread_self(), "rewire-snap");
  setpriority(PRIO_PROCESS, 0, 10);
  StateMemory memory;  // the driver's objects belong to this thread, and go with it
  for (;;) {
    uint64_t version = 0;
    {
      MutexLock lock(&mutex_);
      busy_ = false;
      changed_.NotifyAll();
      while (!asked_ && !stop_) changed_.WaitUntil(&mutex_, Now() + seconds(3600));
      if (stop_) return;
      asked_ = false;
      busy_ = true;
      version = version_;
    }
    absl::Status status = CopyOwn(version, &memory);
    if (status.ok() && has_next_) {
      status = SendToBuddy(version);
      if (!status.ok() && !frozen_) transport_->Open(key_, this);
    }
    if (!status.ok() && !frozen_) {
      REWIRE_WARN("snapshot: version %llu has no copy at member %u: %s",
                  static_cast<unsigned long long>(version), next_.member,
                  std::string(status.message()).c_str());
    }
  }
}

}  // namespace rewire
