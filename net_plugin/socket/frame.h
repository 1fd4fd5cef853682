// What goes over the sockets of a link once it is greeted: headers, each followed by its payload;
// docs/net.md. Pure.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace rewire::net {

enum class FrameKind : uint32_t {
  kData = 0x31445752,   // "RWD1": a chunk of a message
  kClose = 0x31435752,  // "RWC1": the sender is through with this use of the link
  kOpen = 0x314F5752,   // "RWO1": a new use, for the listener `sequence` with the key `total`
  kRest = 0x31525752,   // "RWR1": from the receiving side: its end of this use rests, too
  // Of links over RDMA (net_plugin/verbs). About a rail: `offset` is its number, `sequence` its
  // life.
  kJoin = 0x314A5652,     // "RVJ1": queues are offered, of `total` rails; an Offer follows
  kJoined = 0x31415652,   // "RVA1": those of the receiving side; an Offer follows
  kReady = 0x31525652,    // "RVR1": both sides may use the rail
  kRefused = 0x314E5652,  // "RVN1": they may not; why follows
  kFenced = 0x31465652,   // "RVF1": nothing comes through the rail any more; a report follows
  kClear = 0x31435652,    // "RVC1": entries of the clear-to-send ring, for receive `sequence`
  kPiece = 0x31505652,    // "RVP1": a piece of a message; `tag` is its immediate
  kTooLong = 0x314C5652,  // "RVL1": a message of `total` bytes for a receive that has no such room
};

// Little-endian, in this order, without gaps.
struct FrameHeader {
  FrameKind kind = FrameKind::kData;
  uint32_t use = 0;       // of the link, from 1: what is of another use is an error
  uint64_t sequence = 0;  // of the message within the use
  uint64_t total = 0;     // bytes of the message
  uint64_t offset = 0;    // of this chunk in it
  uint32_t bytes = 0;     // of payload that follow
  int32_t tag = 0;
};
static_assert(sizeof(FrameHeader) == 40 && std::is_trivially_copyable_v<FrameHeader>);

static_assert(std::endian::native == std::endian::little, "frames are written as they lie");

inline constexpr uint32_t kMostFrameBytes = 1u << 30;
// A message of several chunks: all but its first may come on any stream. As many as there are
// streams, within these bounds: NCCL sends 512 KiB at a time by default.
inline constexpr size_t kLeastChunkBytes = 64 << 10;
inline constexpr size_t kMostChunkBytes = 2 << 20;

}  // namespace rewire::net
