#include "reconfig/rdma/gid_choice.h"

#include <bit>
#include <tuple>

namespace rewire::rdma {
namespace {

int CommonPrefix(const Gid& a, const Gid& b) {
  for (size_t i = 0; i < a.bytes.size(); ++i) {
    const uint8_t differ = a.bytes[i] ^ b.bytes[i];
    if (differ != 0) return static_cast<int>(8 * i) + std::countl_zero(differ);
  }
  return 128;
}

bool CanTalk(const GidEntry& mine, const GidEntry& peer) {
  return mine.type == peer.type && mine.gid.IsIpv4() == peer.gid.IsIpv4() &&
         mine.gid.IsLinkLocal() == peer.gid.IsLinkLocal();
}

// Returns the rank of a row; greater is better.
auto Worth(const GidEntry& entry, const GidWish& wish) {
  const bool kept =
      wish.previous && wish.previous->gid == entry.gid && wish.previous->type == entry.type;
  return std::tuple(kept, entry.type == GidType::kRoceV2, !entry.gid.IsLinkLocal(),
                    entry.gid.IsIpv4(), wish.peer ? CommonPrefix(entry.gid, wish.peer->gid) : 0,
                    -static_cast<int64_t>(entry.index));
}

}  // namespace

std::optional<GidEntry> ChooseGid(std::span<const GidEntry> table, LinkLayer link,
                                  const GidWish& wish) {
  const GidEntry* best = nullptr;
  for (const GidEntry& entry : table) {
    const bool roce = entry.type != GidType::kInfiniBand;
    if (entry.gid.IsZero() || roce != (link == LinkLayer::kEthernet)) continue;
    if (!roce) {
      if (best == nullptr || entry.index < best->index) best = &entry;
      continue;
    }
    if (wish.interface != 0 && entry.interface != wish.interface) continue;
    if (wish.peer && !CanTalk(entry, *wish.peer)) continue;
    if (best == nullptr || Worth(entry, wish) > Worth(*best, wish)) best = &entry;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

}  // namespace rewire::rdma
