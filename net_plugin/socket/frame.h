// The wire format of a link's sockets after the handshake: headers, each followed by its payload
// (docs/net.md). Plain values for both transports.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace rewire::net {

enum class FrameKind : uint32_t {
  kData = 0x31445752,      // "RWD1": a chunk of a message
  kClose = 0x31435752,     // "RWC1": the sender has finished this use of the link
  kOpen = 0x314F5752,      // "RWO1": a new use, for the listener `sequence` with the key `total`
  kFinished = 0x31525752,  // "RWR1": the receiving side has also finished this use
  // The following kinds belong to links over RDMA (net_plugin/verbs). In frames about a rail,
  // `offset` is the rail's number and `sequence` its attempt to join.
  kJoin = 0x314A5652,     // "RVJ1": offers queues of `total` rails; an Offer follows
  kJoined = 0x31415652,   // "RVA1": the receiving side's queues; an Offer follows
  kReady = 0x31525652,    // "RVR1": both sides may use the rail
  kRefused = 0x314E5652,  // "RVN1": the rail is refused; the reason follows
  kFenced = 0x31465652,   // "RVF1": the rail is fenced; a report follows
  kClear = 0x31435652,    // "RVC1": entries of the clear-to-send ring, for receive `sequence`
  kPiece = 0x31505652,    // "RVP1": a piece of a message; `tag` is its immediate
  kTooLong = 0x314C5652,  // "RVL1": a message of `total` bytes exceeds its receive's buffer
};

// The fields are little-endian, in this order, without gaps.
struct FrameHeader {
  FrameKind kind = FrameKind::kData;
  uint32_t use = 0;       // of the link, from 1; a frame of another use is an error
  uint64_t sequence = 0;  // of the message within the use
  uint64_t total = 0;     // bytes of the message
  uint64_t offset = 0;    // of this chunk in the message
  uint32_t bytes = 0;     // payload bytes that follow
  int32_t tag = 0;
};
static_assert(sizeof(FrameHeader) == 40 && std::is_trivially_copyable_v<FrameHeader>);

static_assert(std::endian::native == std::endian::little, "frames are written as they lie");

// Formats the fields for an error: "kind=0x31445752 use=1 sequence=4 total=8 offset=0 bytes=8".
[[nodiscard]] std::string FrameText(const FrameHeader& header);

inline constexpr uint32_t kMostFrameBytes = 1u << 30;
// A message is split into one chunk per stream within these bounds; NCCL sends 512 KiB at a time by
// default. The first chunk goes on stream 0; the other chunks may arrive on any stream.
inline constexpr size_t kLeastChunkBytes = 64 << 10;
inline constexpr size_t kMostChunkBytes = 2 << 20;

}  // namespace rewire::net
