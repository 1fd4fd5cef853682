// What goes over the sockets of a link: headers, each followed by its payload; docs/net.md. Pure.
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
// A message of several chunks: all but its first may come on any stream.
inline constexpr size_t kChunkBytes = 512 << 10;

}  // namespace rewire::net
