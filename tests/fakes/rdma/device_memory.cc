// Checks accesses, and lands bytes in pieces; see device_memory.h.
#include "tests/fakes/rdma/device_memory.h"

#include <algorithm>
#include <cstring>

namespace rewire::rdma::fake {
namespace {

// Stores as a bus does: in whole words if possible. A program that polls memory sees each word
// whole.
void Store(char* to, std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    if (reinterpret_cast<uintptr_t>(to + i) % 8 == 0 && bytes.size() - i >= 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, 8);
      __atomic_store_n(reinterpret_cast<uint64_t*>(to + i), word, __ATOMIC_RELEASE);
      i += 8;
    } else {
      __atomic_store_n(to + i, bytes[i], __ATOMIC_RELEASE);
      ++i;
    }
  }
}

}  // namespace

Region& MemoryTable::Add(const Region& region, uint64_t random) {
  // Keys are far apart and not in order, so that a key that is off by one is invalid.
  const uint32_t lkey = (++added_ << 12 | static_cast<uint32_t>(random & 0xfff)) & ~kRemote;
  Region& added = regions_[lkey] = region;
  added.lkey = lkey;
  added.rkey = lkey | kRemote;
  return added;
}

char* MemoryTable::Find(uint32_t key, uint32_t domain, uint64_t address, uint64_t bytes,
                        Touch touch) const {
  const bool remote = touch == Touch::kRemoteRead || touch == Touch::kRemoteWrite;
  if (remote != ((key & kRemote) != 0)) return nullptr;
  const auto found = regions_.find(key & ~kRemote);
  if (found == regions_.end()) return nullptr;
  const Region& region = found->second;
  if (region.domain != domain) return nullptr;
  if (address < region.base || bytes > region.bytes ||
      address - region.base > region.bytes - bytes) {
    return nullptr;
  }
  const bool allowed = touch == Touch::kLocalRead    ? true
                       : touch == Touch::kLocalWrite ? region.access.local_write
                       : touch == Touch::kRemoteRead ? region.access.remote_read
                                                     : region.access.remote_write;
  return allowed ? region.host + (address - region.base) : nullptr;
}

std::pair<uint64_t, uint64_t> Landing::Add(char* to, std::string_view bytes, uint32_t lkey,
                                           uint64_t message, uint64_t unit,
                                           const std::function<uint64_t()>& next) {
  // If two writes of one queue pair overlap, the later write must stay.
  const bool overlaps = std::any_of(pieces_.begin(), pieces_.end(), [&](const auto& piece) {
    return piece.second.to < to + bytes.size() && to < piece.second.to + piece.second.bytes.size();
  });
  if (overlaps) LandAll();
  const uint64_t first = tickets_;
  while (!bytes.empty()) {
    const auto at = reinterpret_cast<uintptr_t>(to);
    const uint64_t end = at + 1 + next() % std::max<uint64_t>(bytes.size(), unit);
    const uint64_t cut = std::min<uint64_t>((end + unit - 1) / unit * unit - at, bytes.size());
    pieces_.emplace(tickets_++, Piece{to, std::string(bytes.substr(0, cut)), lkey, message});
    to += cut;
    bytes.remove_prefix(cut);
  }
  return {first, tickets_};
}

void Landing::Land(uint64_t ticket) {
  auto piece = pieces_.extract(ticket);
  if (!piece.empty()) Store(piece.mapped().to, piece.mapped().bytes);
}

void Landing::LandAll() {
  for (const auto& [ticket, piece] : pieces_) Store(piece.to, piece.bytes);
  pieces_.clear();
}

void Landing::End(uint64_t message, uint32_t lkey, const std::function<bool()>& coin) {
  std::erase_if(pieces_, [&](const auto& entry) {
    const Piece& piece = entry.second;
    if (lkey != 0 && piece.lkey != lkey) return false;
    if (piece.message < message || coin()) Store(piece.to, piece.bytes);
    return true;
  });
}

}  // namespace rewire::rdma::fake
