// Takes the copies and has them sent; see snapshotter.h.
#include "reconfig/state/snapshot/snapshotter.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "reconfig/base/check.h"
#include "reconfig/base/log.h"
#include "reconfig/base/short_turns.h"
#include "reconfig/state/plan/snapshot_part.h"

namespace rewire::state {
namespace {

// The bytes copied between two checks of frozen_.
constexpr uint64_t kPartBytes = 8 << 20;

}  // namespace

Snapshotter::Snapshotter(Transport* transport, Budget* budget, Options options)
    : buddy_(options.buddy),
      link_(transport, budget, std::move(options)),
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

Snapshotter::Shapes Snapshotter::ShapesOf(const ParallelLayout& layout, uint32_t slot) const {
  Shapes out;
  out.sharded = CopiesPieces(layout);
  const bool pieces = out.sharded && buddy_;
  const uint32_t slots = layout.slots();
  const uint32_t before = (slot + slots - 1) % slots;
  const bool sends = pieces && slots > 1;
  struct Share {
    Box box;
    bool whole = false;  // every slot with this part keeps it, and no other
  };
  const auto share_of = [&](uint32_t tensor, uint32_t holder) {
    const bool whole = KeptWholeBy(layout, tensor, holder);
    return Share{whole || pieces ? SnapshotPart(layout, tensor, holder) : Box{}, whole};
  };
  // The shares of this slot and of the slot before it depend on the tensor's kind alone.
  std::map<std::pair<ParallelLayout::Kind, uint32_t>, std::pair<Share, Share>> shares;
  for (uint32_t t = 0; t < layout.tensors().size(); ++t) {
    const auto [known, is_new] = shares.try_emplace({layout.KindOf(t), layout.StageOfLayer(t)});
    if (is_new) known->second = {share_of(t, slot), share_of(t, before)};
    const auto& [own, kept] = known->second;
    out.own.boxes.push_back(own.box);
    out.sent.push_back(sends && !own.whole ? own.box : Box{});
    out.kept.laid_out.push_back(kept.box);
    out.kept.boxes.push_back(sends && !kept.whole ? kept.box : Box{});
    out.own.element_bytes.push_back(layout.tensors()[t].element_bytes);
  }
  out.own.laid_out = out.own.boxes;
  out.kept.element_bytes = out.own.element_bytes;
  return out;
}

SnapshotSlots::Memory Snapshotter::Reserve(const ParallelLayout& layout, uint32_t slot) const {
  return own_.Reserve(ShapesOf(layout, slot).own.Room());
}

void Snapshotter::StartWorld(const World& world, const Key& secret, uint32_t slot,
                             const ParallelLayout& layout, std::vector<PlacedTensor> tensors,
                             SnapshotSlots::Memory memory) {
  MutexLock world_lock(&world_mutex_);
  FreezeLocked();
  tensors_ = std::move(tensors);
  const auto slots = static_cast<uint32_t>(world.members.size());
  REWIRE_DCHECK(layout.slots() == slots && layout.tensors().size() == tensors_.size());
  Shapes parts = ShapesOf(layout, slot);
  sharded_ = parts.sharded;
  boxes_ = parts.own.boxes;
  volatile_.clear();
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].shape.change == Change::kVolatile && !boxes_[t].empty()) volatile_.push_back(t);
  }
  std::optional<BuddyLink::Neighbours> neighbours;
  if (buddy_ && sharded_ && slots > 1) {
    neighbours = {{Purpose::kSnapshot, world.epoch, secret},
                  world.members[(slot + 1) % slots],
                  world.members[(slot + slots - 1) % slots],
                  std::move(parts.sent),
                  parts.own.element_bytes};
  }
  std::vector<SnapshotSlots::Memory> old;
  old.push_back(own_.Reset(std::move(parts.own), std::move(memory)));
  frozen_ = false;
  old.push_back(link_.Start(std::move(parts.kept), std::move(neighbours)));
  MutexLock lock(&mutex_);
  cut_off_ = false;
  std::move(old.begin(), old.end(), std::back_inserter(old_));
}

void Snapshotter::Freeze() {
  MutexLock lock(&world_mutex_);
  FreezeLocked();
}

void Snapshotter::FreezeLocked() {
  if (frozen_.exchange(true)) return;
  // The thread checks frozen_ after every piece, and the closed stream ends its waits. Before that
  // check the thread may send, or open the stream again, so the link is stopped until the thread is
  // idle.
  for (bool busy = true; busy;) {
    link_.Stop();
    MutexLock lock(&mutex_);
    asked_ = false;
    if (busy_) changed_.WaitUntil(&mutex_, Now() + milliseconds(20));
    busy = busy_;
  }
  link_.Stop();
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
    const StatePlace from = t.place.At(at);
    uint64_t content = 0;
    absl::Status s = memory->CopyHashed(from, {MemoryKind::kHost, *room, nullptr}, n, at, &content);
    if (s.ok()) s = own_.Add(version, tensor, at, n, content);
    if (!s.ok()) return s;
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
  Ask(version, /*compare=*/false);
}

void Snapshotter::Ask(uint64_t version, bool compare) {
  MutexLock lock(&mutex_);
  asked_ = true;
  compare_ = compare;
  version_ = version;
  changed_.NotifyAll();
}

void Snapshotter::Compare(uint64_t version) {
  if (frozen_ || !InBackground()) return;
  Ask(version, /*compare=*/true);
}

std::optional<std::string> Snapshotter::TakeDifference() {
  MutexLock lock(&mutex_);
  return std::exchange(difference_, std::nullopt);
}

bool Snapshotter::TakeCutOff() {
  MutexLock lock(&mutex_);
  return std::exchange(cut_off_, false);
}

void Snapshotter::CopyAgain(uint64_t version) {
  std::vector<uint32_t> constant;
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].shape.change == Change::kConstant) constant.push_back(t);
  }
  // Also after a loss: a recovery must not use these copies. The thread is idle.
  own_.Forget(version, constant);
  link_.Forget(version);
  CopyRest(version);
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
  if (sharded_ && !buddy_) return {};
  return own_.WholeVersions();
}

std::vector<uint64_t> Snapshotter::BuddyVersions() const {
  return kept().bytes() == 0 ? std::vector<uint64_t>{} : kept().WholeVersions();
}

std::optional<std::string> Snapshotter::FindDifference(uint64_t version, StateMemory* memory) {
  uint32_t index = 0;
  for (const ListedPart& part : own_.List(version, &index)) {
    const PlacedTensor& t = tensors_[part.tensor];
    if (t.shape.change != Change::kConstant || frozen_ ||
        !CheckAllocation(t.shape.name, t.place, t.allocation).ok()) {
      continue;
    }
    const StatePlace place = t.place.At(part.offset);
    uint64_t content = 0;
    const absl::Status read = memory->Hash(place, part.bytes, part.offset, &content);
    if (read.ok() && content != part.content) return t.shape.name;
  }
  return std::nullopt;
}

absl::Status Snapshotter::CopyOwn(uint64_t version, StateMemory* memory) {
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].shape.change != Change::kConstant) continue;
    if (absl::Status s = CopyPiece(t, version, memory); !s.ok()) return s;
  }
  return absl::OkStatus();
}

void Snapshotter::Run() {
  pthread_setname_np(pthread_self(), "rewire-snap");
  setpriority(PRIO_PROCESS, 0, 10);
  TakeShortTurns();
  StateMemory memory;  // this thread creates and destroys the driver's objects
  for (;;) {
    uint64_t version = 0;
    bool compare = false;
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
      compare = compare_;
    }
    if (compare) {
      std::optional<std::string> difference = FindDifference(version, &memory);
      MutexLock lock(&mutex_);
      difference_ = std::move(difference);
      continue;
    }
    absl::Status status = CopyOwn(version, &memory);
    const bool took_last = !link_.failed();
    // Also without an own copy: the next slot may have to drop earlier ones.
    const absl::Status sent =
        frozen_ ? absl::CancelledError("the world is changing") : link_.Send(version, &own_);
    if (status.ok()) status = sent;
    if (took_last && (absl::IsUnavailable(sent) || absl::IsDataLoss(sent))) {
      MutexLock lock(&mutex_);
      cut_off_ = !frozen_;
    }
    if (!status.ok() && !frozen_) {
      REWIRE_WARN("snapshot: version=%llu: no copy at member %u: %s",
                  static_cast<unsigned long long>(version), link_.next(),
                  std::string(status.message()).c_str());
    }
  }
}

}  // namespace rewire::state
