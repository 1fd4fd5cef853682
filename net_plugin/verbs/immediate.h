// The 32-bit immediate of each piece of a message over RDMA; see docs/net.md. Pure, thread-safe.
#pragma once

#include <cstdint>

namespace rewire::net {

// The maximum number of pieces per message: the receiver marks the pieces in one word.
inline constexpr uint32_t kMostPieces = 64;

struct Immediate {
  uint64_t sequence = 0;  // of the receive; its low 21 bits are sent
  uint32_t part = 0;      // index of the receive's buffer
  uint32_t piece = 0;     // index in the message
  bool apart = false;     // the data came before; the byte count comes with this immediate
  bool last = false;      // the last piece of the message
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
