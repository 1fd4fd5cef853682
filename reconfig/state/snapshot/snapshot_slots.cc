// Stores the versions of a snapshot; see snapshot_slots.h.
#include "reconfig/state/snapshot/snapshot_slots.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/state/stream/content.h"

namespace rewire::state {

uint64_t SnapshotSlots::Shape::Room() const {
  uint64_t bytes = 0;
  for (size_t t = 0; t < laid_out.size(); ++t) bytes += laid_out[t].size() * element_bytes[t];
  return bytes;
}

Block SnapshotSlots::NewBlock(uint64_t bytes) const {
  return shared_ ? Block::Shared(bytes) : Block::Of(bytes);
}

SnapshotSlots::Memory SnapshotSlots::Reserve(uint64_t bytes) const {
  Memory memory;
  for (size_t i = 0; i < kKeptVersions; ++i) {
    {
      MutexLock lock(&mutex_);
      if (slots_[i].data.size() >= bytes && !slots_[i].left) continue;
    }
    memory.blocks[i] = NewBlock(bytes);
    memory.blocks[i].Touch();
  }
  return memory;
}

SnapshotSlots::Memory SnapshotSlots::Reset(Shape shape, Memory memory, Keep keep) {
  MutexLock lock(&mutex_);
  shape_ = std::move(shape);
  if (keep == Keep::kNothing) owner_ = 0;
  starts_.clear();
  room_ = bytes_ = 0;
  for (size_t t = 0; t < shape_.boxes.size(); ++t) {
    starts_.push_back(room_);
    room_ += shape_.laid_out[t].size() * shape_.element_bytes[t];
    bytes_ += shape_.boxes[t].size() * shape_.element_bytes[t];
  }
  for (size_t i = 0; i < kKeptVersions; ++i) {
    Slot& s = slots_[i];
    s.used = false;
    s.parts.clear();
    s.arrived = 0;
    const bool left = std::exchange(s.left, false);
    if (left || keep == Keep::kNothing || memory.blocks[i].size() > 0) {
      std::swap(s.data, memory.blocks[i]);
    }
  }
  return memory;
}

absl::StatusOr<uint64_t> SnapshotSlots::PlaceOf(uint32_t tensor, uint64_t offset,
                                                uint64_t bytes) const {
  if (tensor >= shape_.boxes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot: tensor=", tensor, ": must be below ", shape_.boxes.size()));
  }
  const uint64_t size = shape_.element_bytes[tensor];
  const uint64_t begin = shape_.boxes[tensor].begin * size;
  const uint64_t end = begin + shape_.boxes[tensor].size() * size;
  if (offset < begin || offset > end || bytes > end - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot of tensor ", tensor, ": bytes [", offset, ", ", offset + bytes,
                     "): must lie inside this slot's part [", begin, ", ", end, ")"));
  }
  return starts_[tensor] + (offset - begin);
}

void SnapshotSlots::Begin(Slot* slot, uint64_t version) {
  slot->used = true;
  slot->version = version;
  slot->parts.clear();
  slot->arrived = 0;
}

absl::StatusOr<SnapshotSlots::Slot*> SnapshotSlots::For(uint64_t version) {
  for (Slot& s : slots_) {
    if (s.used && s.version == version) return &s;
  }
  Slot* const oldest = std::min_element(std::begin(slots_), std::end(slots_), [](auto& a, auto& b) {
    return std::pair(a.used, a.version) < std::pair(b.used, b.version);
  });
  if (oldest->used && oldest->version > version) {
    return absl::InvalidArgumentError(absl::StrCat(
        "snapshot: version=", version, ": must not be older than version ", oldest->version));
  }
  if (std::exchange(oldest->left, false)) oldest->data = Block();
  // Only the owner of mapped memory may write to that memory.
  const bool fits = oldest->data.size() >= room_ && oldest->data.writable();
  if (!fits && !oldest->data.Grow(room_)) oldest->data = NewBlock(room_);
  if (oldest->data.size() < room_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("allocate host memory for a snapshot: bytes=", room_, ": no memory"));
  }
  Begin(oldest, version);
  return oldest;
}

const SnapshotSlots::Slot* SnapshotSlots::Find(uint64_t version) const {
  for (const Slot& s : slots_) {
    if (s.used && s.version == version) return &s;
  }
  return nullptr;
}

absl::StatusOr<char*> SnapshotSlots::Room(uint64_t version, uint32_t tensor, uint64_t offset,
                                          uint64_t bytes) {
  MutexLock lock(&mutex_);
  const absl::StatusOr<uint64_t> at = PlaceOf(tensor, offset, bytes);
  if (!at.ok()) return at.status();
  const absl::StatusOr<Slot*> slot = For(version);
  if (!slot.ok()) return slot.status();
  if (absl::Status s = CheckNew(**slot, *at, bytes); !s.ok()) return s;
  return (*slot)->data.data() + *at;
}

absl::Status SnapshotSlots::CheckNew(const Slot& slot, uint64_t at, uint64_t bytes) {
  const auto after = slot.parts.lower_bound(at);
  const bool into_next = after != slot.parts.end() && after->first < at + bytes;
  const bool from_last =
      after != slot.parts.begin() && std::prev(after)->first + std::prev(after)->second.bytes > at;
  if (!into_next && !from_last) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("snapshot: version=", slot.version,
                                                 ": a part at byte ", at, " of ", bytes,
                                                 " bytes arrived twice"));
}

absl::Status SnapshotSlots::AddTo(Slot* slot, const ListedPart& part) {
  const absl::StatusOr<uint64_t> at = PlaceOf(part.tensor, part.offset, part.bytes);
  if (!at.ok()) return at.status();
  if (absl::Status s = CheckNew(*slot, *at, part.bytes); !s.ok()) return s;
  slot->parts.emplace(*at, part);
  slot->arrived += part.bytes;
  return absl::OkStatus();
}

absl::Status SnapshotSlots::Add(uint64_t version, uint32_t tensor, uint64_t offset, uint64_t bytes,
                                uint64_t content) {
  MutexLock lock(&mutex_);
  const absl::StatusOr<Slot*> slot = For(version);
  if (!slot.ok()) return slot.status();
  return AddTo(*slot, {tensor, offset, bytes, content});
}

absl::Status SnapshotSlots::Put(uint64_t version, uint32_t tensor, uint64_t offset,
                                std::span<const char> bytes, uint64_t content) {
  MutexLock lock(&mutex_);
  const absl::StatusOr<uint64_t> at = PlaceOf(tensor, offset, bytes.size());
  if (!at.ok()) return at.status();
  const absl::StatusOr<Slot*> slot = For(version);
  if (!slot.ok()) return slot.status();
  if (absl::Status s = AddTo(*slot, {tensor, offset, bytes.size(), content}); !s.ok()) return s;
  std::memcpy((*slot)->data.data() + *at, bytes.data(), bytes.size());
  return absl::OkStatus();
}

void SnapshotSlots::LeaveMemory() {
  MutexLock lock(&mutex_);
  for (Slot& s : slots_) s.left = true;
}

absl::StatusOr<MemoryFiles> SnapshotSlots::Share() {
  MutexLock lock(&mutex_);
  MemoryFiles fds;
  for (size_t i = 0; i < kKeptVersions; ++i) {
    Slot& s = slots_[i];
    if (s.data.size() < room_ && !s.used && !s.data.Grow(room_)) s.data = NewBlock(room_);
    if (s.data.size() < room_ || s.data.fd() < 0) {
      return absl::UnavailableError("share snapshots: the memory is not in a file (memfd)");
    }
    fds[i] = s.data.fd();
  }
  return fds;
}

absl::Status SnapshotSlots::MapOf(pid_t owner, const MemoryFiles& fds) {
  MutexLock lock(&mutex_);
  Block blocks[kKeptVersions];
  for (size_t i = 0; i < kKeptVersions; ++i) {
    blocks[i] = Block::MapOf(owner, fds[i], room_);
    if (blocks[i].size() < room_) {
      return absl::UnavailableError(
          absl::StrCat("map snapshots of process ", owner, ": bytes=", room_, ": not possible"));
    }
  }
  for (size_t i = 0; i < kKeptVersions; ++i) {
    slots_[i].used = false;
    slots_[i].data = std::move(blocks[i]);
  }
  owner_ = owner;
  return absl::OkStatus();
}

void SnapshotSlots::Forget(uint64_t version, std::span<const uint32_t> tensors) {
  MutexLock lock(&mutex_);
  for (Slot& s : slots_) {
    if (!s.used || s.version > version) continue;
    std::erase_if(s.parts, [&](const auto& placed) {
      const ListedPart& part = placed.second;
      const bool dropped = std::find(tensors.begin(), tensors.end(), part.tensor) != tensors.end();
      if (dropped) s.arrived -= part.bytes;
      return dropped;
    });
    if (!s.left) continue;
    // New parts must not be written into the next slot's memory.
    Block fresh = s.parts.empty() ? Block() : NewBlock(room_);
    s.used = fresh.size() >= room_ && fresh.size() > 0;
    if (!s.used) continue;
    for (const auto& [at, part] : s.parts) {
      std::memcpy(fresh.data() + at, s.data.data() + at, part.bytes);
    }
    s.data = std::move(fresh);
    s.left = false;
  }
}

void SnapshotSlots::Forget(uint64_t version) {
  MutexLock lock(&mutex_);
  for (Slot& s : slots_) {
    if (s.version <= version) s.used = false;
  }
}

bool SnapshotSlots::MayChange() const {
  MutexLock lock(&mutex_);
  return owner_ != 0 && (kill(owner_, 0) == 0 || errno != ESRCH);
}

std::vector<ListedPart> SnapshotSlots::List(uint64_t version, uint32_t* index) const {
  MutexLock lock(&mutex_);
  std::vector<ListedPart> parts;
  const Slot* const slot = Find(version);
  if (slot == nullptr) return parts;
  *index = static_cast<uint32_t>(slot - slots_);
  for (const auto& [at, part] : slot->parts) parts.push_back(part);
  return parts;
}

absl::Status SnapshotSlots::TakeList(uint64_t version, uint32_t index,
                                     std::span<const ListedPart> parts) {
  MutexLock lock(&mutex_);
  if (index >= kKeptVersions || slots_[index].data.size() < room_ ||
      slots_[index].data.writable()) {
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot parts: index=", index, ": names memory that is not mapped"));
  }
  Slot& slot = slots_[index];
  if (!slot.used || slot.version != version) {
    if (slot.used && slot.version > version) {
      return absl::InvalidArgumentError(absl::StrCat(
          "snapshot: version=", version, ": must not be older than version ", slot.version));
    }
    Begin(&slot, version);
  }
  for (const ListedPart& part : parts) {
    if (absl::Status s = AddTo(&slot, part); !s.ok()) return s;
  }
  return absl::OkStatus();
}

bool SnapshotSlots::Unchanged(const Slot& slot, uint64_t at, const ListedPart& part) {
  return HashContent(slot.data.data() + at, part.bytes, part.offset) == part.content;
}

bool SnapshotSlots::HasWhole(uint64_t version, std::span<const uint32_t> tensors) const {
  MutexLock lock(&mutex_);
  const Slot* const slot = Find(version);
  if (slot == nullptr) return tensors.empty();
  uint64_t missing = 0;
  for (const uint32_t t : tensors) {
    if (t >= shape_.boxes.size()) return false;
    missing += shape_.boxes[t].size() * shape_.element_bytes[t];
  }
  for (const auto& [at, part] : slot->parts) {
    if (std::find(tensors.begin(), tensors.end(), part.tensor) == tensors.end()) continue;
    if (!Unchanged(*slot, at, part)) return false;
    missing -= part.bytes;
  }
  return missing == 0;
}

std::vector<uint64_t> SnapshotSlots::WholeVersions() const {
  MutexLock lock(&mutex_);
  std::vector<uint64_t> versions;
  for (const Slot& s : slots_) {
    if (!s.used || s.arrived != bytes_) continue;
    const bool whole = std::all_of(s.parts.begin(), s.parts.end(),
                                   [&](const auto& p) { return Unchanged(s, p.first, p.second); });
    if (whole) versions.push_back(s.version);
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

bool SnapshotSlots::Arrived(uint64_t version) const {
  MutexLock lock(&mutex_);
  const Slot* slot = Find(version);
  return slot != nullptr && slot->arrived == bytes_;
}

const char* SnapshotSlots::Piece(uint64_t version, uint32_t tensor) const {
  MutexLock lock(&mutex_);
  const Slot* slot = Find(version);
  return slot == nullptr || tensor >= starts_.size() ? nullptr
                                                     : slot->data.data() + starts_[tensor];
}

Box SnapshotSlots::PieceBox(uint32_t tensor) const {
  MutexLock lock(&mutex_);
  return tensor < shape_.boxes.size() ? shape_.boxes[tensor] : Box{};
}

uint64_t SnapshotSlots::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace rewire::state
