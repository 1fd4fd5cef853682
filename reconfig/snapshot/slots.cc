// The two slots; see slots.h.
#include "reconfig/snapshot/slots.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/stream/content.h"

namespace rewire {

SnapshotSlots::Memory SnapshotSlots::Reserve(uint64_t bytes) const {
  Memory memory;
  for (size_t i = 0; i < 2; ++i) {
    {
      MutexLock lock(&mutex_);
      if (slots_[i].data.size() >= bytes) continue;
    }
    memory.blocks[i] = Block::Of(bytes);
    memory.blocks[i].Touch();
  }
  return memory;
}

void SnapshotSlots::Reset(std::vector<Box> boxes, std::vector<uint32_t> element_bytes,
                          Memory memory) {
  MutexLock lock(&mutex_);
  boxes_ = std::move(boxes);
  element_bytes_ = std::move(element_bytes);
  starts_.clear();
  bytes_ = 0;
  for (size_t t = 0; t < boxes_.size(); ++t) {
    starts_.push_back(bytes_);
    bytes_ += boxes_[t].size() * element_bytes_[t];
  }
  for (size_t i = 0; i < 2; ++i) {
    Slot& s = slots_[i];
    s.used = false;
    s.parts.clear();
    s.arrived = 0;
    if (memory.blocks[i].size() > 0) s.data = std::move(memory.blocks[i]);
  }
}

SnapshotSlots::Slot* SnapshotSlots::For(uint64_t version) {
  for (Slot& s : slots_) {
    if (s.used && s.version == version) return &s;
  }
  Slot* oldest = &slots_[0];
  if (oldest->used && (!slots_[1].used || slots_[1].version < oldest->version)) oldest = &slots_[1];
  if (oldest->used && oldest->version > version) return nullptr;
  oldest->used = true;
  oldest->version = version;
  if (oldest->data.size() < bytes_) oldest->data = Block::Of(bytes_);
  oldest->parts.clear();
  oldest->arrived = 0;
  return oldest;
}

const SnapshotSlots::Slot* SnapshotSlots::Find(uint64_t version) const {
  for (const Slot& s : slots_) {
    if (s.used && s.version == version) return &s;
  }
  return nullptr;
}

absl::Status SnapshotSlots::Put(uint64_t version, uint32_t tensor, uint64_t offset,
                                std::span<const char> bytes, uint64_t content) {
  MutexLock lock(&mutex_);
  if (tensor >= boxes_.size()) return absl::InvalidArgumentError("a snapshot of no tensor");
  const uint64_t begin = boxes_[tensor].begin * element_bytes_[tensor];
  const uint64_t end = begin + boxes_[tensor].size() * element_bytes_[tensor];
  if (offset < begin || offset > end || bytes.size() > end - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("a snapshot of tensor ", tensor, " outside of this slot's piece"));
  }
  Slot* slot = For(version);
  if (slot != nullptr && slot->data.size() < bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no host memory for a snapshot of ", bytes_, " bytes"));
  }
  if (slot == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("a snapshot of the old version ", version));
  }
  const uint64_t at = starts_[tensor] + (offset - begin);
  for (const Part& p : slot->parts) {
    if (at < p.at + p.bytes && p.at < at + bytes.size()) {
      return absl::InvalidArgumentError("a part of a snapshot came twice");
    }
  }
  std::memcpy(slot->data.data() + at, bytes.data(), bytes.size());
  slot->parts.push_back({at, offset, bytes.size(), content});
  slot->arrived += bytes.size();
  return absl::OkStatus();
}

std::vector<uint64_t> SnapshotSlots::WholeVersions() const {
  MutexLock lock(&mutex_);
  std::vector<uint64_t> versions;
  for (const Slot& s : slots_) {
    if (!s.used || s.arrived != bytes_) continue;
    const bool whole = std::all_of(s.parts.begin(), s.parts.end(), [&](const Part& p) {
      return HashContent(s.data.data() + p.at, p.bytes, p.offset) == p.content;
    });
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
  return tensor < boxes_.size() ? boxes_[tensor] : Box{};
}

uint64_t SnapshotSlots::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace rewire
