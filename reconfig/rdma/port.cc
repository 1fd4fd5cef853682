// Formats and chooses addresses, and computes the speeds of links; see port.h.
#include "reconfig/rdma/port.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <tuple>

namespace rewire::rdma {
namespace {

constexpr std::array<uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

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

Gid Gid::OfIpv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  Gid gid;
  std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), gid.bytes.begin());
  gid.bytes[12] = a;
  gid.bytes[13] = b;
  gid.bytes[14] = c;
  gid.bytes[15] = d;
  return gid;
}

bool Gid::IsIpv4() const {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), bytes.begin());
}

bool Gid::IsLinkLocal() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

std::string Gid::Text() const {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

uint32_t LinkSpeedMbps(uint8_t width_code, uint32_t speed_code) {
  uint32_t lanes = 0;
  switch (width_code) {
    case 1:
      lanes = 1;
      break;
    case 2:
      lanes = 4;
      break;
    case 4:
      lanes = 8;
      break;
    case 8:
      lanes = 12;
      break;
    case 16:
      lanes = 2;
      break;
    default:
      break;
  }
  uint32_t lane = 0;
  switch (speed_code) {
    case 1:
      lane = 2500;
      break;  // SDR
    case 2:
      lane = 5000;
      break;  // DDR
    case 4:   // QDR
    case 8:   // FDR10
      lane = 10000;
      break;
    case 16:
      lane = 14000;
      break;  // FDR
    case 32:
      lane = 25000;
      break;  // EDR
    case 64:
      lane = 50000;
      break;  // HDR
    case 128:
      lane = 100000;
      break;  // NDR
    case 256:
      lane = 200000;
      break;  // XDR
    default:
      break;
  }
  return lanes * lane;
}

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
