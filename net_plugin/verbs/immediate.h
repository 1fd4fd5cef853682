// The 32 bits that come with each piece of a message over RDMA; docs/net.md. Pure.
#pragma once

#include <cstdint>

namespace rewire::net {

// Pieces that a message is cut into at most: the receiver marks them in one word.
inline constexpr uint32_t kMostPieces = 64;

struct Immediate {
  uint64_t sequence = 0;  // of the receive; its low 21 bits travel
  uint32_t part = 0;      // which of the receive's buffers
  uint32_t piece = 0;     // of the message
  bool apart = false;     // its data came before, and the message's bytes with this
  bool last = false;      // the message has no further ones
};

inline constexpr uint64_t kSequenceMask = (1U << 21) - 1;

inline uint32_t Pack(const Immediate& i) {
  return static_cast<uint32_t>(i.sequence & kSequenceMask) << 11 | i.part << 8 | i.piece << 2 |
         (i.apart ? 2U : 0U) | (i.last ? 1U : 0U);
}

inline Immediate Unpack(uint32_t bits) {
  return {bits >> 11, bits >> 8 & 7, bits >> 2 & 63, (bits & 2) != 0, (bits & 1) != 0};
}

}  // namespace rewire::net
