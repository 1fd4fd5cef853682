// The values that the NICs of the two sides write to each other beside the data (docs/net.md).
//
// The clear-to-send ring is in the sender's memory, and the receiver writes its buffers into it:
// one entry of 64 bytes for each buffer of each receive. The NIC writes while the sender's thread
// reads. An entry is valid when its last word says so: a NIC writes a cache line at once or in the
// order of its words. The receiver holds the same ring as the source of its writes. After the
// entries, in the other direction, follow the byte counts of messages whose data are sent apart
// from their immediate. An immediate tells the receiver which piece of a message has arrived.
// Thread-compatible: owned by the thread that polls the connection; the functions for immediates
// are pure.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "reconfig/abi/net_core.h"

namespace rewire::net {

// The maximum number of NICs that one connection uses on either side.
inline constexpr size_t kMostRails = kMaxVirtual;

struct ClearToSend {
  uint64_t address = 0;
  uint32_t bytes = 0;  // size of the buffer
  int32_t tag = 0;
  std::array<uint32_t, kMostRails> rkeys{};  // by rail
  uint32_t count = 0;                        // buffers of this receive
  uint32_t carried = 0;                      // 1: sockets can also deliver into the buffer
  uint64_t mark = 0;                         // the receive's sequence + 1
};
static_assert(sizeof(ClearToSend) == 64 && std::is_trivially_copyable_v<ClearToSend>);

class alignas(4096) ClearRing {
 public:
  // Receives with one buffer, which are the most common, have adjacent entries: one WRITE of 64
  // bytes per receive clears several receives.
  static constexpr size_t OffsetOf(uint64_t sequence, uint32_t count) {
    const size_t slot = sequence % kMaxRequests;
    return (count == 1 ? slot : kMaxRequests + slot * kMaxRecvs) * sizeof(ClearToSend);
  }
  // Returns the bytes from the first entry of receive `first` to the last of receive `end` - 1,
  // which has `count` buffers. All of the receives have one buffer, or all have several, and `end`
  // is at most the next multiple of kMaxRequests.
  static constexpr size_t Bytes(uint64_t first, uint64_t end, uint32_t count) {
    const uint64_t stride = count == 1 ? 1 : kMaxRecvs;
    return ((end - 1 - first) * stride + count) * sizeof(ClearToSend);
  }
  static constexpr size_t OffsetOfTotal(uint64_t sequence, uint32_t part) {
    return sizeof(singles_) + sizeof(entries_) +
           (sequence % kMaxRequests * kMaxRecvs + part) * sizeof(totals_[0][0]);
  }
  // The byte count of the message for buffer `part` of this receive.
  [[nodiscard]] uint32_t* Total(uint64_t sequence, uint32_t part) {
    return &totals_[sequence % kMaxRequests][part];
  }
  // The entries of a receive with `count` buffers.
  [[nodiscard]] ClearToSend* Entries(uint64_t sequence, uint32_t count) {
    const size_t slot = sequence % kMaxRequests;
    return count == 1 ? &singles_[slot] : entries_[slot].data();
  }
  // Returns the entry for buffer `part` of this receive, or nothing if it has not arrived.
  [[nodiscard]] std::optional<ClearToSend> Read(uint64_t sequence, uint32_t part) {
    const ClearToSend* entry = Entries(sequence, 1);
    if (part > 0 || !IsMarked(*entry, sequence)) {
      entry = Entries(sequence, kMaxRecvs) + part;
      if (!IsMarked(*entry, sequence)) return {};
    }
    const auto* from = reinterpret_cast<const uint64_t*>(entry);
    std::array<uint64_t, sizeof(ClearToSend) / 8> words;
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
    }
    return std::bit_cast<ClearToSend>(words);
  }
  // True if all entries of this receive have arrived.
  [[nodiscard]] bool Whole(uint64_t sequence) {
    const std::optional<ClearToSend> first = Read(sequence, 0);
    if (!first || first->count == 0 || first->count > kMaxRecvs) return false;
    for (uint32_t part = 1; part < first->count; ++part) {
      if (!Read(sequence, part)) return false;
    }
    return true;
  }

 private:
  static bool IsMarked(const ClearToSend& entry, uint64_t sequence) {
    return __atomic_load_n(&entry.mark, __ATOMIC_ACQUIRE) == sequence + 1;
  }

  std::array<ClearToSend, kMaxRequests> singles_{};
  std::array<std::array<ClearToSend, kMaxRecvs>, kMaxRequests> entries_{};
  std::array<std::array<uint32_t, kMaxRecvs>, kMaxRequests> totals_{};
};

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
